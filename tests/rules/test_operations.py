"""Which operations `LOOM.md` allows."""

import pytest

from loom import ProjectRules
from loom.project.rules.loom_file import parse_loom_file

RULES = ProjectRules(
    folder="/srv/app",
    allowed={"shell": ("git *", "make test"), "file_write": ("src/**", "docs")},
    denied={"shell": ("git push", "rm"), "file_write": ("src/secret/",), "*": ("*.pem",)},
)


@pytest.mark.parametrize(
    ("category", "operation"),
    [
        ("shell", "git status"),
        ("Shell", "  git   log  -3 "),
        ("shell", "make test -j 2"),
        ("shell", 'git commit -m "rm; push"'),
        ("shell", "git log '$(rm x)'"),
        ("shell", "git add a && git status | git stash"),
        ("file_write", "src/a.py"),
        ("File Write", "./src/deep/b.py"),
        ("file-write", "/srv/app/docs/index.md"),
        ("file_write", "docs"),
        ("file_read", "anything"),
    ],
)
def test_an_operation_is_allowed(category: str, operation: str) -> None:
    verdict = RULES.judge(category, operation)
    assert verdict.is_allowed, verdict.why
    assert RULES.is_allowed(category, operation)


@pytest.mark.parametrize(
    ("category", "operation", "why"),
    [
        ("shell", "git push", "shell: git push is denied"),
        ("shell", "git   push --force", "shell: git push is denied"),
        ("shell", "git status && rm -rf /", "shell: rm is denied"),
        ("shell", "git status\nrm x", "shell: rm is denied"),
        ("shell", "git log $(rm x)", "shell: rm is denied"),
        ("shell", 'git log "`rm x`"', "shell: rm is denied"),
        ("shell", "git log 'open; rm x", "shell: rm is denied"),
        ("shell", "A=1 sudo /bin/rm x", "shell: rm is denied"),
        ("shell", "curl x", "no allowed pattern of shell matches: git *, make test"),
        ("shell", "git log | sh", "no allowed pattern of shell matches: git *, make test"),
        ("shell", "gitk", "no allowed pattern of shell matches: git *, make test"),
        ("file_write", "src/secret/key", "file_write: src/secret/ is denied"),
        ("file_write", "src/x/../secret/key", "file_write: src/secret/ is denied"),
        ("file_write", "src/../etc/passwd", "no allowed pattern of file_write matches: src/**, "),
        ("file_write", "../src/a", "no allowed pattern of file_write matches: src/**, "),
        ("file_read", "keys/a.pem", "file_read: *.pem is denied"),
    ],
)
def test_an_operation_is_not_allowed(category: str, operation: str, why: str) -> None:
    verdict = RULES.judge(category, operation)
    assert not verdict.is_allowed
    assert verdict.why.startswith(why)


DENIED = ProjectRules(folder="/srv/app", denied={"shell": ("git push", "rm *")})


@pytest.mark.parametrize(
    "command",
    [
        "git -C . push",
        "git -C. --no-pager -c a=b push origin",
        "env X=1 git push",
        "env -i -u A git push",
        "sudo -u me git push",
        'sh -c "git push"',
        "bash -lc 'cd x && git push'",
        "env -S 'git push'",
        "timeout -k 1 5 nice -n 3 git push",
        "r\\m x",
        "'rm' x",
        "g''it \"pu\"sh",
        "git $'\\x70ush'",
        "git \\\npush",
        "{ git push; }",
        "if true; then git push; fi",
        "while ! git push; do sleep 1; done",
        "f() { git push; }; f",
        "eval git push",
        "xargs -0 rm < names",
        "find . -name x -exec rm {} +",
        "bash <<END\ngit push\nEND",
        "cat <<END\n$(git push)\nEND",
        "cat <<END | sh\ngit push\nEND",
        'echo "$(git push)"',
        "git > log push",
        "git $WHAT",
        "git p*sh",
        "git ${X:-push}",
        "$PROGRAM push",
        "{rm,x}",
        "sudo -a " * 200 + "ls",
        "x;" * 2_000,
    ],
)
def test_a_command_is_denied_however_it_is_written(command: str) -> None:
    assert not DENIED.is_allowed("shell", command)


@pytest.mark.parametrize(
    "command",
    [
        "git log > x",
        "echo 'git push'",
        "git log --grep='git push'",
        "ls # rm x",
        'git commit -m "don\'t push"',
        "git diff HEAD~1 -- '*.py' $FILES",
        "$VENV/bin/pip install x",
        "[ -f a ] && ls *.py",
        "cat > notes <<'END'\ngit push\nwe don't\nEND\nls",
        'for f in *; do echo "$f"; done',
        "awk '{print $1}' x | sort 2>&1",
        "make -j$(nproc)",
    ],
)
def test_what_only_looks_alike_is_not_denied(command: str) -> None:
    verdict = DENIED.judge("shell", command)
    assert verdict.is_allowed, verdict.why


def test_in_doubt_the_reason_says_so() -> None:
    why = DENIED.judge("shell", "git $WHAT").why
    assert why == "shell: git push is denied, and only the shell knows whether this is that"


def test_without_allowed_patterns_a_category_is_open_but_for_what_is_denied() -> None:
    rules = ProjectRules(folder="/", denied={"shell": ("rm",)})
    assert rules.judge("shell", "ls").why == "nothing is said of shell operations like this"
    assert not rules.is_allowed("shell", "rm x")


def test_more_patterns_than_can_be_compared_allow_nothing_more() -> None:
    many = ", ".join(f"p{n}" for n in range(600))
    made = parse_loom_file(
        f"## Allowed Operations\nnet: {many}\n## Denied Operations\nshell: {many}"
    )
    assert len(made.allowed["net"]) == 500
    assert made.denied == {"shell": ("*",)}
    assert made.problems == (
        "net: it has more than 500 patterns; the first of them count",
        "shell: it has more than 500 patterns; all of its operations are denied",
    )


def test_a_line_that_is_no_operation_is_denied_everywhere_and_allows_nothing() -> None:
    made = parse_loom_file("## Allowed Operations\n- be nice\n## Denied Operations\n- rm -rf *\n")
    assert made.allowed == {}
    assert made.denied == {"*": ("rm -rf *",)}
    assert [problem.split(":")[0] for problem in made.problems] == ["line 2", "line 4"]


def test_a_fence_is_no_pattern_and_a_category_without_patterns_is_reported() -> None:
    text = "## Denied Operations\n```\nshell: rm *\n```\nnet:\n## Allowed Operations\nshell:\n"
    found = parse_loom_file(text)
    assert found.denied == {"shell": ("rm *",), "net": ("*",)}
    assert found.allowed == {}
    assert found.problems == (
        'line 5: "net:" has no pattern; all of it is denied',
        'line 7: "shell:" has no pattern; it allows nothing',
    )
