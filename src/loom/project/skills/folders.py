"""The skills of a project: where they are, and what each file says, read within limits.

A file of a project is not trusted: links out of the folder are not followed, no file is read whole
whatever its size, and control characters are removed. What is wrong is a problem with its file and
line. A skill with a problem is listed with what could be read; it is skipped only if it has no name
that can be used, or no text.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from unicodedata import category

from msgspec import Struct

from loom.conversation.names import flatten
from loom.errors import ChoiceError, shorten
from loom.project.decoding import decode_text
from loom.project.skills.frontmatter import LineProblem, Value, split_frontmatter

PROJECT_PLACES = (".loom/skills", ".claude/skills", ".agents/skills", "skills")
FILE_NAME = "SKILL.md"
MAX_SKILL_BYTES = 64 * 1024  # of a file that are read
MAX_SKILLS = 500  # of all places
MAX_FOLDER_ENTRIES = 2000  # of one place that are looked at
MAX_DESCRIPTION_CHARS = 1024
MAX_FILES = 20  # of a skill's folder that are named
MAX_FILE_DEPTH = 3
MAX_TOOLS = 20  # that a skill names
_FILE = re.compile(r"[\w ./@+-]{1,100}")  # of its folder: others are not named
MAX_NAME_CHARS = 64
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME_CHARS - 1}}}")
MIN_LIKENESS = 0.75  # of a key to one that is read, so that it is taken for a slip
_READ_KEYS = (
    "name",
    "description",
    "when_to_use",
    "when-to-use",
    "allowed-tools",
    "allowed_tools",
    "license",
    "metadata",
    "disable-model-invocation",
)
_OTHER_KEYS = ("compatibility", "version", "model", "user-invocable", "argument-hint", "author")


class Skill(Struct, frozen=True, kw_only=True):
    """One skill: what it is called, what it is for, its text, and where it is.

    `file` is below the `folder` that it was found in if that is the project, else the whole path.
    `files` are the other files of its folder.
    """

    name: str
    description: str
    when_to_use: str = ""
    allowed_tools: tuple[str, ...] = ()
    license: str = ""
    metadata: dict[str, str] = {}
    body: str
    file: str
    place: str
    files: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    is_manual: bool = False  # whether it is loaded only by its name


class Skills(Struct, frozen=True):
    """The skills that were found, by name, and what was wrong: what is skipped, and what another
    skill of the same name hides.
    """

    found: tuple[Skill, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """All that is wrong, a line each."""
        return (*self.problems, *(what for skill in self.found for what in skill.problems))

    def get(self, name: str) -> Skill:
        """The skill of this name; an error that names the nearest if there is none."""
        wanted = name.strip().casefold()
        for skill in self.found:
            if skill.name.casefold() == wanted:
                return skill
        names = sorted(skill.name for skill in self.found)
        if not names:
            raise ChoiceError(f"there is no skill {shorten(name)!r}: no skills were found")
        nearest = get_close_matches(name[:MAX_NAME_CHARS], names, 1)
        hint = f"the nearest is {nearest[0]}; " if nearest else ""
        raise ChoiceError(
            f"there is no skill {shorten(name)!r}; {hint}there are {shorten(', '.join(names), 400)}"
        )


class _SkillPlace(Struct, frozen=True):
    """A folder of skills; what is in it must be within the folder `within`."""

    folder: Path
    within: Path
    label: str


def user_skills_folder() -> Path:
    """The folder of the user's own skills."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(home) if os.path.isabs(home) else Path.home() / ".config"
    return base / "loom" / "skills"


def find_skills(
    project: str | os.PathLike[str] | None, folders: Iterable[str | os.PathLike[str]] = ()
) -> Skills:
    """The skills of the folders named here, of a project, and of the user. If two have one name,
    the first one found counts.
    """
    root = Path(project).resolve() if project else None
    found: dict[str, Skill] = {}
    problems: list[str] = []
    for place in _list_places(root, folders):
        for path in _list_skill_folders(place, problems):
            if len(found) >= MAX_SKILLS:
                problems.append(f"only the first {MAX_SKILLS} skills are read")
                break
            skill = _read_skill(path, place, root, problems)
            if skill is None:
                continue
            first = found.setdefault(skill.name.casefold(), skill)
            if first is not skill:
                problems.append(f"{skill.file}: {first.file} has the same name and counts")
    return Skills(tuple(found.values()), tuple(problems))


def check_skill_folders(folders: Iterable[str | os.PathLike[str]]) -> None:
    """Refuse what is not a folder."""
    for folder in folders:
        if not Path(folder).is_dir():
            raise ChoiceError(f"{shorten(str(folder), 200)} is not a folder of skills")


def _list_places(
    root: Path | None, folders: Iterable[str | os.PathLike[str]]
) -> Iterator[_SkillPlace]:
    for folder in folders:
        path = Path(folder).resolve()
        yield _SkillPlace(path, path, str(path))
    if root is not None:
        for name in PROJECT_PLACES:
            yield _SkillPlace(root / name, root, name)
    user = user_skills_folder()
    yield _SkillPlace(user, user.resolve(), str(user))


def _list_skill_folders(place: _SkillPlace, problems: list[str]) -> list[Path]:
    """The folders of a place that have a SKILL.md, in the order of their names. A place that is a
    skill itself is one.
    """
    if not os.path.isdir(place.folder):
        return []
    if not place.folder.resolve().is_relative_to(place.within):
        problems.append(f"{place.label}: a link out of the project is not followed")
        return []
    if os.path.lexists(place.folder / FILE_NAME):
        return [place.folder]
    try:
        with os.scandir(place.folder) as entries:
            names = [entry.name for entry in islice(entries, MAX_FOLDER_ENTRIES)]
    except OSError as error:
        problems.append(f"{place.label}: {error.strerror or error}")
        return []
    if len(names) == MAX_FOLDER_ENTRIES:
        problems.append(f"{place.label}: only {MAX_FOLDER_ENTRIES:,} entries are looked at")
    folders = [place.folder / name for name in sorted(names)]
    return [folder for folder in folders if os.path.lexists(folder / FILE_NAME)]


def _read_skill(
    folder: Path, place: _SkillPlace, root: Path | None, problems: list[str]
) -> Skill | None:
    path = folder / FILE_NAME
    file = _label(path, root)
    try:
        if not _is_inside(folder, path, place):
            problems.append(f"{file}: skipped; a link out of its folder is not followed")
            return None
        key = (str(path), file, place.label, _sign(folder), _sign(path))
        if (known := _read_before.get(key)) is not None:
            return known
        text, cut, flaw = _read_text(path)
    except (OSError, RuntimeError) as error:
        what = getattr(error, "strerror", None) or str(error)
        problems.append(f"{file}: skipped; {what}")
        return None
    flaws = [f"{file}: {flaw}"] if flaw else []
    if cut:
        flaws.append(f"{file}: only the first {MAX_SKILL_BYTES:,} of {cut:,} bytes are read")
    skill = _parse_skill(text, flaws, folder, place, file, problems)
    if skill is not None:
        if len(_read_before) >= MAX_SKILLS:
            _read_before.clear()
        _read_before[key] = skill
    return skill


# skills by their files, for as long as these are as they were
_read_before: dict[tuple[object, ...], Skill] = {}


def _sign(path: Path) -> tuple[int, ...]:
    """What is different once a file or a folder was written."""
    about = os.stat(path)
    return about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_ino


def _is_inside(folder: Path, path: Path, place: _SkillPlace) -> bool:
    """Whether no link leads out of the place."""
    if not os.path.islink(folder) and not os.path.islink(path):
        return True
    return path.resolve().is_relative_to(place.within)


def _parse_skill(
    text: str,
    flaws: list[str],
    folder: Path,
    place: _SkillPlace,
    file: str,
    problems: list[str],
) -> Skill | None:
    read = split_frontmatter(text)
    wrong = [*(_place_problem(file, problem) for problem in read.problems), *flaws]
    wrong += _name_unknown_keys(file, text, read.values)
    name = _choose_name(read.values.get("name"), folder.name, file, wrong)
    body = read.body.strip()
    if name is None or not body:
        problems.extend(wrong)
        problems.append(f"{file}: skipped; it has no {'text' if name else 'name that can be used'}")
        return None
    description = _one_line(read.values.get("description"))
    if not description:
        description = _first_line(body)
        wrong.append(f"{file}: it has no description; the first line of its text counts")
    metadata = read.values.get("metadata")
    return Skill(
        name=name,
        description=description[:MAX_DESCRIPTION_CHARS],
        when_to_use=_one_line(read.values.get("when_to_use") or read.values.get("when-to-use"))[
            :MAX_DESCRIPTION_CHARS
        ],
        allowed_tools=_read_tools(
            read.values.get("allowed-tools") or read.values.get("allowed_tools")
        ),
        license=_one_line(read.values.get("license")),
        metadata=metadata if isinstance(metadata, dict) else {},
        body=body,
        file=file,
        place=place.label,
        files=_list_files(folder, place.within),
        problems=tuple(wrong),
        is_manual=read.values.get("disable-model-invocation") == "true",
    )


def _read_text(path: Path) -> tuple[str, int, str]:
    """The text of a plain file, cleaned, its bytes if only its beginning was read, and what is
    wrong with it. Whoever waits behind a pipe is not waited for.
    """
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(number, "rb") as file:
        about = os.fstat(number)
        if not stat.S_ISREG(about.st_mode):
            raise OSError("not a plain file")
        content = file.read(MAX_SKILL_BYTES + 1)
    cut = about.st_size if len(content) > MAX_SKILL_BYTES else 0
    decoded = decode_text(content[:MAX_SKILL_BYTES])
    if not decoded.is_text:
        raise OSError(decoded.problem)
    return clean_text(decoded.text), cut, decoded.problem


def clean_text(text: str) -> str:
    """A text without control characters and without marks that change the direction or hide
    words; line breaks and tabs stay.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii() and not _CONTROLS.search(text):
        return text
    return "".join(character for character in text if _is_shown(character))


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_JOINERS = "\u200c\u200d"


def _is_shown(character: str) -> bool:
    if character in "\n\t" or character in _JOINERS:
        return True
    return category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp", "Co")


def _choose_name(given: Value | None, folder: str, file: str, wrong: list[str]) -> str | None:
    """The name that a file gives, or that of its folder; None if neither can be used."""
    if isinstance(given, str) and _NAME.fullmatch(given.strip()):
        return given.strip()
    if given:
        wrong.append(
            f"{file}: the name {shorten(str(given))!r} must have at most 64 letters, digits, "
            "dots, - and _; the name of the folder counts"
        )
    elif given is None:
        wrong.append(f"{file}: it has no name; the name of the folder counts")
    return folder if _NAME.fullmatch(folder) else None


def _name_unknown_keys(file: str, text: str, values: dict[str, Value]) -> list[str]:
    """A line for each key that is a slip of a key that is read."""
    made = []
    for key in values:
        if key in _READ_KEYS or key in _OTHER_KEYS:
            continue
        nearest = get_close_matches(key[:MAX_NAME_CHARS], _READ_KEYS, 1, MIN_LIKENESS)
        if nearest:
            line = next(
                (n for n, each in enumerate(text.split("\n"), 1) if each.startswith(key)), 1
            )
            made.append(f"{file}:{line}: the key {key} is not known; the nearest is {nearest[0]}")
    return made


def _place_problem(file: str, problem: LineProblem) -> str:
    return f"{file}:{problem.line}: {problem.what}"


def _one_line(value: Value | None) -> str:
    if isinstance(value, tuple):
        value = "; ".join(value)
    return " ".join(flatten(value).split()) if isinstance(value, str) else ""


def _first_line(body: str) -> str:
    """The first line of a text that says something."""
    lines = (line.lstrip("# ").strip() for line in body.split("\n"))
    return next(filter(None, lines), "")


def _read_tools(value: Value | None) -> tuple[str, ...]:
    names: Sequence[str] = ()
    if isinstance(value, str):
        names = re.split(r"[,\s]+(?![^(]*\))", value)
    elif isinstance(value, tuple):
        names = value
    short = (_one_line(name)[:MAX_NAME_CHARS] for name in names)
    return tuple(name for name in short if name and not set(name) & set("<>"))[:MAX_TOOLS]


def _list_files(folder: Path, within: Path) -> tuple[str, ...]:
    """The other files of a skill, in order, without what is hidden or linked out of its folder."""
    made: list[str] = []
    waiting: list[tuple[Path, int]] = [(folder, 1)]
    looked_at = 0
    while waiting and len(made) < MAX_FILES and looked_at < MAX_FOLDER_ENTRIES:
        here, depth = waiting.pop(0)
        entries = _scan(here)
        looked_at += len(entries)
        for entry in entries:
            path = here / entry.name
            if entry.name.startswith(".") or path == folder / FILE_NAME:
                continue
            if not path.resolve().is_relative_to(within):
                continue
            if entry.is_dir(follow_symlinks=False) and depth < MAX_FILE_DEPTH:
                waiting.append((path, depth + 1))
            elif entry.is_file():
                made.append(path.relative_to(folder).as_posix())
    return tuple(filter(_FILE.fullmatch, made[:MAX_FILES]))


def _scan(folder: Path) -> Sequence[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            found = list(islice(entries, MAX_FOLDER_ENTRIES))
    except OSError:
        return []
    return sorted(found, key=lambda entry: entry.name)


def _label(path: Path, root: Path | None) -> str:
    if root is not None and path.is_relative_to(root):
        return flatten(path.relative_to(root).as_posix())
    return flatten(str(path))
