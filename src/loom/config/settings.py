"""One value for each key of the configuration, and where it comes from.

Sources from the weakest to the strongest: the project's file, the user's file, the environment,
options. If no source has a value, the default holds.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from loom.config.keys import (
    KEYS,
    KEYS_BY_NAME,
    RULES,
    ZONE_KEYS,
    ZONE_VARIABLES,
    ZONES_WITH_KEYS,
    Key,
    find_mistake,
    find_zone_mistake,
    name_nearest,
    zone_key,
)
from loom.config.project_file import (
    IGNORE_PROJECT_VARIABLE,
    PROJECT_FILE,
    WAY_OUT,
    ProjectFile,
    read_project_file,
)
from loom.config.toml_files import TomlFile, parse_toml, read_text_file, read_toml_file
from loom.config.user_folder import user_folder
from loom.errors import ChoiceError, ConfigError, describe, shorten

if TYPE_CHECKING:
    from loom.context import Policy  # takes long to load, and few files name a policy

USER_FILE = "loom/config.toml"
# The headroom if only one end of it is set: what its formula gives for 32,000 and 1,000,000 tokens.
USUAL_HEADROOM = (55, 93)
CONFIGURED_POLICY = "configured"  # the name of a policy that is a table without a name


class SettingSource(Struct, frozen=True):
    """A value of one source. `origin` is FILE:LINE, a variable, or an option."""

    value: Any
    origin: str


class Setting(Struct, frozen=True):
    """A key with the value that holds, and the values that lost, the strongest first.

    An `origin` of "" means that nobody set the key.
    """

    key: Key
    value: Any = None
    origin: str = ""
    lost: tuple[SettingSource, ...] = ()


class Configuration(Struct, frozen=True):
    """The configuration of a folder."""

    project: ProjectFile
    user_file: Path
    values: dict[str, Setting]
    policies: "dict[str, str | Policy]"  # by the origin of the value that names them

    def get(self, key: str) -> Any:
        """The value of a key; None if nobody set it."""
        found = self.values.get(key)
        return found.value if found else None

    @property
    def model(self) -> str | None:
        """Name of the model that gets the requests."""
        return _text(self.get("context.model"))

    @property
    def weak_model(self) -> str | None:
        """Name of the model for summaries."""
        return _text(self.get("context.weak_model"))

    @property
    def window(self) -> int | None:
        """Size of the whole window in tokens."""
        return _number(self.get("context.window"))

    @property
    def reserve_output(self) -> int | None:
        """Part of the window that is reserved for the answer."""
        return _number(self.get("context.reserved_output_tokens"))

    @property
    def store(self) -> str | None:
        """Path or address of the store."""
        return _text(self.get("store"))

    @property
    def policy(self) -> "str | Policy | None":
        """Name of the policy, or the policy itself."""
        return self.policies.get(self.values["context.policy"].origin)

    @property
    def zones(self) -> dict[str, int]:
        """Sizes of zones in tokens."""
        sizes = {
            zone: self.get(f"context.{key}")
            for zone, key in ZONES_WITH_KEYS.items()
            if zone != "reserved_output"
        }
        for name, setting in self.values.items():
            if name.startswith(f"{ZONE_KEYS}."):
                sizes[name.removeprefix(f"{ZONE_KEYS}.")] = setting.value
        return {zone: size for zone, size in sizes.items() if size is not None}

    @property
    def headroom(self) -> tuple[int, int] | None:
        """How full history may be before summaries begin, in percent: at least, and at most. None
        if neither is set.
        """
        floor = self.get("context.headroom_floor_pct")
        ceiling = self.get("context.headroom_ceiling_pct")
        if floor is None and ceiling is None:
            return None
        usual_floor, usual_ceiling = USUAL_HEADROOM
        if floor is None:
            return min(usual_floor, ceiling), ceiling
        if ceiling is None:
            return floor, max(usual_ceiling, floor)
        return floor, ceiling

    def name_origins(self) -> str:
        """The sizes that are configured, each with its origin, for an error; "" if none is."""
        found = [
            f"{name} is {setting.value} at {setting.origin}"
            for name, setting in self.values.items()
            if setting.origin and setting.key.kind in ("tokens", "window")
        ]
        return f"configured: {', '.join(found)}" if found else ""

    def budget_sizes(self) -> dict[str, Any]:
        """The sizes that are configured, by the names of the options of a budget."""
        zones = self.zones
        sizes = {
            "window": self.window,
            "reserved_output": self.reserve_output,
            "max_repo_map_tokens": zones.pop("repo_map", None),
            "max_decision_tokens": zones.pop("decision_context", None),
            "zones": zones or None,
        }
        return {name: value for name, value in sizes.items() if value is not None}


def resolve_configuration(
    folder: str | PathLike[str] = ".",
    *,
    options: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Configuration:
    """The configuration that holds in a folder. `options` are values by the names of their keys.

    The first thing that is wrong is raised, with file and line.
    """
    environment = os.environ if environment is None else environment
    return settle_configuration(find_project_file(folder, environment), options, environment)


def find_project_file(
    folder: str | PathLike[str], environment: Mapping[str, str] | None = None
) -> ProjectFile:
    """The file of the project that a folder belongs to; without one if it is to be ignored."""
    environment = os.environ if environment is None else environment
    if environment.get(IGNORE_PROJECT_VARIABLE):
        return ProjectFile(Path(os.path.realpath(folder)))
    return read_project_file(folder)


def settle_configuration(
    project: ProjectFile,
    options: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Configuration:
    """The configuration with what a project's file says. If that is wrong, the error says how to do
    without it.
    """
    if project.problem is not None:
        raise project.problem
    environment = os.environ if environment is None else environment
    try:
        return _settle(project, options, environment)
    except ConfigError as error:
        if error.file.startswith(f"{project.root}{os.sep}"):
            raise error.extend(WAY_OUT) from None
        raise


def _settle(
    project: ProjectFile, options: Mapping[str, Any] | None, environment: Mapping[str, str]
) -> Configuration:
    user_file = user_folder(environment) / USER_FILE
    found = _SourceValues()
    if project.file is not None:
        _read_file(found, project.file, within=project.root)
    if user := read_toml_file(user_file):
        _read_file(found, user, within=None)
    _read_environment(found, environment)
    for name, value in (options or {}).items():
        found.add_given(_find_key(name), value, "option")
    settings = Configuration(project, user_file, found.settle(), found.policies)
    _check_headroom(settings)
    _check_reserve(settings)
    _check_zone_names(settings)
    return settings


class _SourceValues:
    """What the sources say, the weakest first."""

    def __init__(self) -> None:
        self._sources: dict[str, list[SettingSource]] = {}
        self._keys = dict(KEYS_BY_NAME)
        self.policies: dict[str, str | Policy] = {}

    def add(self, key: Key, value: Any, origin: str) -> None:
        self._keys[key.name] = key
        self._sources.setdefault(key.name, []).append(SettingSource(value, origin))

    def add_given(self, key: Key, value: Any, origin: str) -> None:
        """Take a value that is in no file."""
        mistake = find_mistake(key, value)
        if mistake:
            raise ConfigError(mistake, origin)
        if key.kind == "policy":
            try:
                self.policies[origin] = load_policy(value, Path.cwd())
            except ChoiceError as error:
                raise ConfigError(str(error), origin) from None
        self.add(key, value, origin)

    def settle(self) -> dict[str, Setting]:
        """A setting for each key: the strongest source wins."""
        return {name: self._settle(key) for name, key in self._keys.items()}

    def _settle(self, key: Key) -> Setting:
        *lost, won = self._sources.get(key.name, ()) or (None,)
        if won is None:
            return Setting(key)
        return Setting(key, won.value, won.origin, tuple(each for each in lost[::-1] if each))


def _read_file(found: _SourceValues, file: TomlFile, within: Path | None) -> None:
    """Take the values of a file. A project's file may not reach out of the folder `within`."""
    for path, value in _flatten(file.table):
        if path[0] == RULES:
            _check_rules(file, value, within)
            continue
        name = ".".join(path)
        key = _find_key_of(file, path)
        mistake = find_mistake(key, value)
        if mistake:
            raise file.error(mistake, *path)
        origin = file.place(*path)
        if key.kind == "store":
            value = _find_store(file, value, within)
        if key.kind == "name" and within is not None and "://" in value:
            raise file.error(
                f"the model {shorten(value)!r} is an address: a {PROJECT_FILE} may only name a "
                "model; write the address into your own configuration file, or into "
                f"{key.variable}",
                *path,
            )
        if name == "context.policy":
            found.policies[origin] = _find_policy(file, value, within)
        found.add(key, value, origin)


def _flatten(table: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The keys of a file with their values. What is below a key of a table's own is its value."""
    for name, value in table.items():
        if name != "context" or not isinstance(value, dict):
            yield (name,), value
            continue
        for inner, each in value.items():
            if inner == "zones" and isinstance(each, dict):
                yield from ((("context", "zones", zone), size) for zone, size in each.items())
            else:
                yield ("context", inner), each


def _find_key_of(file: TomlFile, path: tuple[str, ...]) -> Key:
    """The key at a path of a file, or an error with the nearest."""
    if path[:2] == ("context", "zones") and len(path) == 3:
        mistake = find_zone_mistake(path[2])
        if mistake:
            raise file.error(mistake, *path)
        return zone_key(path[2])
    name = ".".join(path)
    if name in KEYS_BY_NAME:
        return KEYS_BY_NAME[name]
    if name in ("context", ZONE_KEYS):
        raise file.error(f"{name} must be a table: write [{name}] and its keys below it", *path)
    nearest = name_nearest(name, (*KEYS_BY_NAME, "context", ZONE_KEYS, RULES))
    raise file.error(f"there is no key {shorten(name, 80)!r}; {nearest}", *path)


def _find_key(name: str) -> Key:
    if name.startswith(f"{ZONE_KEYS}."):
        return zone_key(name.removeprefix(f"{ZONE_KEYS}."))
    if name not in KEYS_BY_NAME:
        nearest = name_nearest(name, KEYS_BY_NAME)
        raise ChoiceError(f"there is no key {shorten(name, 80)!r}; {nearest}")
    return KEYS_BY_NAME[name]


def _check_rules(file: TomlFile, value: Any, within: Path | None) -> None:
    if within is None:
        raise file.error(
            f"rules belong to a project: write them into its {PROJECT_FILE}, or into a file that "
            "`loom rules show` lists",
            RULES,
        )
    if not isinstance(value, dict):
        raise file.error(
            f"rules must be a table: write [rules] and its keys below it, found {describe(value)}",
            RULES,
        )


def _find_store(file: TomlFile, value: str, within: Path | None) -> str:
    """The store that a file names. That of a project is a path in the project."""
    if within is None:
        if "://" in value or value == ":memory:":
            return value
        return str(file.path.parent / os.path.expanduser(value))
    way_out = f"a {PROJECT_FILE} may only name a path inside the project; name another store in "
    way_out += "your own configuration file, with LOOM_STORE or with --store"
    if "://" in value or value.startswith((":", "~")) or os.path.isabs(value):
        raise file.error(f"the store {shorten(value)!r} is refused: {way_out}", "store")
    root = Path(os.path.realpath(within))
    path = Path(os.path.realpath(root / value))
    if path == root or not path.is_relative_to(root):
        raise file.error(f"the store {shorten(value)!r} is outside the project: {way_out}", "store")
    if ".git" in (part.lower() for part in path.relative_to(root).parts):
        raise file.error("the store is in a folder of git; choose another folder", "store")
    return str(path)


def _find_policy(file: TomlFile, value: Any, within: Path | None) -> "str | Policy":
    """The policy that a file names, or that it is."""
    from loom.context import Policy

    key = ("context", "policy")
    if isinstance(value, dict):
        fields = {"name": CONFIGURED_POLICY, **value}
        base = fields.pop("extends", "default")
        try:
            return Policy.extends(base, **fields)
        except ChoiceError as error:
            field = next((name for name in value if name in str(error)), None)
            raise file.error(str(error), *key, *([] if field is None else [field])) from None
    try:
        return load_policy(value, file.path.parent, within)
    except ChoiceError as error:
        raise file.error(str(error), *key) from None


def load_policy(name: str, folder: Path, within: Path | None = None) -> "str | Policy":
    """The name of a policy that ships, or the policy of a TOML file. A relative path starts in
    `folder`; the file must be in the folder `within`, if there is one.
    """
    from loom.context import Policy, find_policy

    if not name.endswith(".toml"):
        return find_policy(name).name
    path = folder / os.path.expanduser(name)
    text = read_text_file(path, within)
    if text is None:
        raise ConfigError("there is no such policy file", path)
    parse_toml(path, text)  # within limits, and an error names the line
    try:
        return Policy.from_toml(text)
    except ChoiceError as error:
        raise ConfigError(str(error), path) from None


def _read_environment(found: _SourceValues, environment: Mapping[str, str]) -> None:
    for key in (*KEYS, *_zones_in(environment)):
        given = environment.get(key.variable)
        if not given:
            continue
        value = _parse_variable(key, given)
        found.add_given(key, value, key.variable)


def _zones_in(environment: Mapping[str, str]) -> Iterable[Key]:
    for variable in sorted(environment):
        if variable.startswith(ZONE_VARIABLES) and environment[variable]:
            zone = variable.removeprefix(ZONE_VARIABLES).lower()
            mistake = find_zone_mistake(zone)
            if mistake:
                raise ConfigError(mistake, variable)
            yield zone_key(zone)


def _parse_variable(key: Key, given: str) -> Any:
    if key.kind in ("tokens", "window", "percent") and given.strip().isdecimal():
        return int(given[:20])
    return given


def _check_headroom(settings: Configuration) -> None:
    floor = settings.values["context.headroom_floor_pct"]
    ceiling = settings.values["context.headroom_ceiling_pct"]
    if floor.value is not None and ceiling.value is not None and floor.value > ceiling.value:
        raise ConfigError(
            f"headroom_floor_pct is {floor.value}, more than headroom_ceiling_pct, which is "
            f"{ceiling.value} ({ceiling.origin}); lower it, or raise the ceiling",
            floor.origin,
        )


def _check_reserve(settings: Configuration) -> None:
    reserve = settings.values["context.reserved_output_tokens"]
    window = settings.values["context.window"]
    if window.value is not None and reserve.value is not None and reserve.value >= window.value:
        raise ConfigError(
            f"reserved_output_tokens is {reserve.value} and leaves nothing of the window, which "
            f"is {window.value} ({window.origin}); lower it, or enlarge the window",
            reserve.origin,
        )


def _check_zone_names(settings: Configuration) -> None:
    """Refuse the name of a zone that is a slip of a known one."""
    named = [name for name in settings.values if name.startswith(f"{ZONE_KEYS}.")]
    if not named:
        return
    from loom.context import check_options

    policy = settings.policy or "default"
    for name in named:
        try:
            check_options(policy=policy, zones={name.removeprefix(f"{ZONE_KEYS}."): 0})
        except ChoiceError as error:
            raise ConfigError(str(error), settings.values[name].origin) from None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None
