"""The configuration: which source wins, and what is said of a wrong key or value."""

import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom import Loom, LoomError
from loom.config.keys import KEYS, KEYS_BY_NAME, zone_key
from loom.config.project_file import PROJECT_FILE
from loom.config.settings import USER_FILE, resolve_configuration
from loom.errors import ConfigError

NAMES = st.text(string.ascii_letters + "-:/", min_size=1, max_size=12)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "store": st.sampled_from([".loom/a.db", "b.db", "c/d.db"]),
    "name": NAMES.filter(str.strip),
    "tokens": st.integers(0, 10**9),
    "window": st.integers(1, 10**9),
    "percent": st.integers(10, 100),
    "policy": st.sampled_from(["default", "turns", "tree"]),
}
ALL_KEYS = (*KEYS, zone_key("rules"), zone_key("of_mine"))
TABLES = st.lists(st.sampled_from(ALL_KEYS), unique=True, max_size=6).flatmap(
    lambda keys: st.fixed_dictionaries({key.name: VALUES[key.kind] for key in keys})
)


def to_toml(table: dict[str, Any]) -> str:
    """A file with these values, a dotted key on each line."""
    return "".join(
        f"{name} = {value}\n" if isinstance(value, int) else f'{name} = "{value}"\n'
        for name, value in table.items()
    )


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with a project in it. No file of the one who runs the tests is read."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for key in ALL_KEYS:
        monkeypatch.delenv(key.variable, raising=False)
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return tmp_path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(project=TABLES, user=TABLES, environment=TABLES, options=TABLES)
def test_the_strongest_source_wins_and_the_others_are_named(
    home: Path,
    project: dict[str, Any],
    user: dict[str, Any],
    environment: dict[str, Any],
    options: dict[str, Any],
) -> None:
    folder = home / "project"
    project_file = write(folder / PROJECT_FILE, to_toml(project))
    user_file = write(home / "config" / USER_FILE, to_toml(user))
    variables = {
        next(key.variable for key in ALL_KEYS if key.name == name): str(value)
        for name, value in environment.items()
    }
    variables["XDG_CONFIG_HOME"] = str(home / "config")
    expected: dict[str, list[tuple[str, Any]]] = {}
    sources = (
        (project, lambda name: f"{project_file}:{list(project).index(name) + 1}"),
        (user, lambda name: f"{user_file}:{list(user).index(name) + 1}"),
        (environment, lambda name: next(k.variable for k in ALL_KEYS if k.name == name)),
        (options, lambda name: "option"),
    )
    for table, origin in sources:
        for name, value in table.items():
            in_file = {id(project): folder, id(user): user_file.parent}.get(id(table))
            if name == "store" and in_file is not None:
                value = str(in_file / value)
            expected.setdefault(name, []).insert(0, (origin(name), value))
    floor, ceiling = (
        expected.get(f"context.headroom_{end}_pct", [("", usual)])[0][1]
        for end, usual in (("floor", 0), ("ceiling", 100))
    )
    window = expected.get("context.window", [("", 10**10)])[0][1]
    reserve = expected.get("context.reserved_output_tokens", [("", 0)])[0][1]
    if floor > ceiling or reserve >= window:
        with pytest.raises(ConfigError, match=r"headroom|leaves nothing"):
            resolve_configuration(folder, options=options, environment=variables)
        return
    found = resolve_configuration(folder, options=options, environment=variables)
    for name, sources_of in expected.items():
        setting = found.values[name]
        told = [(setting.origin, setting.value)]
        told += [(lost.origin, lost.value) for lost in setting.lost]
        assert told == sources_of
    unset = {name for name, setting in found.values.items() if not setting.origin}
    assert unset == set(KEYS_BY_NAME) - set(expected)
    assert found.policy == expected.get("context.policy", [("", None)])[0][1]


def test_nothing_configured_is_nothing(home: Path) -> None:
    found = resolve_configuration(
        home / "project", environment={"XDG_CONFIG_HOME": str(home / "none")}
    )
    assert not any(setting.origin for setting in found.values.values())
    assert (found.model, found.window, found.policy, found.zones) == (None, None, None, {})
    assert (found.store, found.reserve_output, found.headroom) == (None, None, None)


WRONG = [
    ("[context]\nwindw = 5\n", 2, "nearest is 'context.window'"),
    ('\nmodel = "x"\n', 2, "nearest is 'context.model'"),
    ("[contxt]\nwindow = 5", 1, "nearest is 'context'"),
    ('[context]\n\nwindow = "5"', 3, "whole number of tokens, 1 or more, found the text '5'"),
    ("[context]\nwindow = 0", 2, "1 or more"),
    ("[context]\nwindow = true", 2, "found True"),
    ("[context]\nwindow = 99999999999999999999", 2, "whole number"),
    ("[context]\nmodel = 3", 2, "must be a text"),
    ('[context]\nmodel = ""', 2, "characters"),
    ('[context]\nmodel = "a\\u001b[31m"', 2, "control characters"),
    ("context = 1", 1, "must be a table"),
    ("[context]\nzones = 3", 2, "must be a table"),
    ("[context.zones]\nrulez = 5", 2, "nearest is 'rules'"),
    ("[context]\nwindow = 10\nreserved_output_tokens = 10", 3, "leaves nothing of the window"),
    ("[context.zones]\nrules = -1", 2, "0 or more"),
    ("[context.zones]\nrepo_map = 10", 2, "context.max_repo_map_tokens"),
    ("[context.zones]\nhistory = 10", 2, "what the other zones leave"),
    ('[context.zones]\n"A b" = 10', 2, "not the name of a zone"),
    ("[context]\nheadroom_floor_pct = 101", 2, "from 10 to 100"),
    ("[context]\nheadroom_floor_pct = 80\nheadroom_ceiling_pct = 60", 2, "more than"),
    ('[context]\npolicy = "defualt"', 2, "nearest is 'default'"),
    ("[context.policy]\nextends = 'default'\nrefil = 0.5", 3, "nearest is refill"),
    ("[context.policy]\nextends = 'default'\nrefill = 5", 3, "from 0.1 to 1"),
    ("[context.policy]\nextends = 'nobody'", 1, "unknown policy"),
    ("[context]\npolicy = 'missing.toml'", 2, "no such policy file"),
    ("[context]\npolicy = 'bad.toml'", 2, "bad.toml"),
    ("[context]\npolicy = 'deep.toml'", 2, "deep.toml:2: a key has more than 16 parts"),
    ("[context]\npolicy = '../outside.toml'", 2, "outside"),
    ("[context]\npolicy = '/etc/passwd.toml'", 2, "outside"),
    ("[context]\npolicy = 'link.toml'", 2, "outside"),
    ("store = '../x.db'", 1, "LOOM_STORE"),
    ("store = '/tmp/x.db'", 1, "LOOM_STORE"),
    ("store = '~/x.db'", 1, "LOOM_STORE"),
    ("store = ':memory:'", 1, "LOOM_STORE"),
    ("store = 'postgres://host/db'", 1, "--store"),
    ("store = 'sqlite:///tmp/x'", 1, "LOOM_STORE"),
    ("store = 'linked/x.db'", 1, "outside the project"),
    ("store = '.git/hooks/x'", 1, "folder of git"),
    ("store = '.'", 1, "outside the project"),
    ("[context]\nmodel = 'https://evil.example/v1#m'", 2, "LOOM_MODEL"),
    ("[context]\nweak_model = 'openai:m@http://x'", 2, "LOOM_WEAK_MODEL"),
    ("rules = 'be nice'", 1, "must be a table"),
    ("zork = 1", 1, "the keys are"),
    ("a = 1\nb = = 2", 2, "not valid TOML"),
]


@pytest.mark.parametrize(("text", "line", "said"), WRONG, ids=[text for text, _, _ in WRONG])
def test_what_is_wrong_names_file_line_and_the_way_out(
    home: Path, text: str, line: int, said: str
) -> None:
    folder = home / "project"
    write(folder / "bad.toml", "name = 3")
    write(folder / "deep.toml", "\n" + "a." * 20_000 + "a = 1")
    write(home / "outside.toml", "name = 'x'")
    (folder / "link.toml").symlink_to(home / "outside.toml")
    (folder / "linked").symlink_to(home)
    path = write(folder / PROJECT_FILE, text)
    with pytest.raises(ConfigError) as caught:
        resolve_configuration(folder)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert said in str(caught.value)
    with pytest.raises(ConfigError):
        Loom.open(":memory:", folder=folder)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("LOOM_WINDOW", "many", "whole number"),
        ("LOOM_WINDOW", "9" * 30, "whole number"),
        ("LOOM_ZONE_HISTORY", "1", "what the other zones leave"),
        ("LOOM_ZONE_REPO_MAP", "1", "max_repo_map_tokens"),
        ("LOOM_POLICY", "nobody", "unknown policy"),
        ("LOOM_HEADROOM_FLOOR_PCT", "5", "from 10 to 100"),
    ],
)
def test_a_wrong_variable_is_named(home: Path, variable: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{variable}: .*{said}"):
        resolve_configuration(home / "project", environment={variable: value})


def test_a_project_file_can_be_ignored(home: Path) -> None:
    write(home / "project" / PROJECT_FILE, "broken")
    found = resolve_configuration(
        home / "project", environment={"LOOM_IGNORE_PROJECT_FILE": "1", "LOOM_WINDOW": "7"}
    )
    assert found.window == 7


def test_rules_belong_to_the_project(home: Path) -> None:
    write(home / "project" / PROJECT_FILE, '[rules]\nstyle = "plain"\n[rules.more]\na = [1]\n')
    found = resolve_configuration(home / "project", environment={"XDG_CONFIG_HOME": "/nowhere"})
    assert found.project.rules["style"] == "plain"
    write(home / "config" / USER_FILE, "[rules]\nstyle = 1\n")
    with pytest.raises(ConfigError, match=r"config\.toml:1: rules belong to a project"):
        resolve_configuration(home / "project")


def test_a_policy_is_a_name_a_file_or_a_table(home: Path) -> None:
    folder = home / "project"
    write(folder / "policies" / "mine.toml", 'name = "mine"\nextends = "default"\nrefill = 0.5\n')
    write(folder / PROJECT_FILE, '[context]\npolicy = "policies/mine.toml"\n')
    policy = resolve_configuration(folder).policy
    assert policy is not None
    assert not isinstance(policy, str)
    assert (policy.name, policy.refill) == ("mine", 0.5)
    write(folder / PROJECT_FILE, '[context.policy]\nextends = "turns"\nmargin = 0.2\n')
    policy = resolve_configuration(folder).policy
    assert policy is not None
    assert not isinstance(policy, str)
    assert (policy.name, policy.margin, policy.strategy) == ("configured", 0.2, "whole_turns")


def test_a_users_file_may_name_any_store(home: Path) -> None:
    for named, meant in (
        ("postgres://h/d", "postgres://h/d"),
        ("/tmp/x.db", "/tmp/x.db"),
        ("x.db", str(home / "config" / "loom" / "x.db")),
    ):
        write(home / "config" / USER_FILE, f"store = '{named}'")
        assert resolve_configuration(home / "project").store == meant


def test_the_headroom_has_usual_ends(home: Path) -> None:
    for text, meant in (
        ("headroom_floor_pct = 60", (60, 93)),
        ("headroom_floor_pct = 95", (95, 95)),
        ("headroom_ceiling_pct = 40", (40, 40)),
        ("headroom_ceiling_pct = 90", (55, 90)),
    ):
        write(home / "project" / PROJECT_FILE, f"[context]\n{text}")
        assert resolve_configuration(home / "project").headroom == meant


def test_an_option_that_does_not_exist_is_refused(home: Path) -> None:
    with pytest.raises(LoomError, match=r"nearest is 'context\.window'"):
        resolve_configuration(home / "project", options={"window": 5})
