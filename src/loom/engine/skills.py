"""What a session knows of skills: where they are, and which the model loaded or put away."""

from collections.abc import Awaitable, Callable, Sequence
from os import PathLike, fspath
from pathlib import Path as FilePath
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import gate_counter
from loom.conversation.checked import checks_arguments
from loom.engine.knowledge import find_question
from loom.errors import ChoiceError, describe
from loom.project.skills.choosing import (
    MAX_ACTIVE_TOKENS,
    LoadedSkill,
    SkillRequest,
    write_catalog,
    write_skill,
)
from loom.project.skills.folders import Skills, check_skill_folders, find_skills
from loom.runtime.threads import async_form
from loom.stores import Node, Path

_T = TypeVar("_T")
MAX_LOADED = 16  # skills that are remembered
MAX_LISTED_TOKENS = 2000  # of the list that the tool returns


class SkillUse(Struct, frozen=True):
    """That the model loaded a skill, or put it away: in which turn, and the node that shows it."""

    name: str
    request: str = ""
    node: str = ""


class SkillsState(Struct, frozen=True):
    """Where the skills of a session are, and what the model did with them, the newest first."""

    project: str = ""
    folders: tuple[str, ...] = ()
    loaded: tuple[SkillUse, ...] = ()
    unloaded: tuple[SkillUse, ...] = ()

    def load(self, use: SkillUse) -> "SkillsState":
        """The state after a skill was loaded."""
        others = (each for each in self.loaded if each.name != use.name)
        return replace(
            self,
            loaded=(use, *others)[:MAX_LOADED],
            unloaded=tuple(each for each in self.unloaded if each.name != use.name),
        )

    def unload(self, use: SkillUse) -> "SkillsState":
        """The state after a skill was put away."""
        others = (each for each in self.unloaded if each.name != use.name)
        return replace(
            self,
            loaded=tuple(each for each in self.loaded if each.name != use.name),
            unloaded=(use, *others)[:MAX_LOADED],
        )


class SkillsAsked(Struct, frozen=True):
    """What a caller asks of skills: names to have in the request, and folders of skills."""

    wanted: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.wanted or self.folders)


def check_skills(wanted: object, folders: object) -> SkillsAsked:
    """The options `skills` and `skill_folders` of a caller."""
    if not isinstance(wanted, list | tuple) or not all(isinstance(name, str) for name in wanted):
        raise ChoiceError(f"skills must be a list of names, found {describe(wanted)}")
    if not isinstance(folders, list | tuple) or not all(
        isinstance(folder, str | PathLike) for folder in folders
    ):
        raise ChoiceError(f"skill_folders must be a list of folders, found {describe(folders)}")
    return SkillsAsked(
        tuple(dict.fromkeys(wanted)),
        tuple(str(FilePath(fspath(folder)).absolute()) for folder in folders),
    )


def refuse_unknown_skills(project: "str | PathLike[str] | None", asked: SkillsAsked) -> None:
    """Refuse names and folders of skills that do not exist, before anything is written."""
    if not asked:
        return

    check_skill_folders(asked.folders)
    found = find_skills(project, asked.folders)
    for name in asked.wanted:
        found.get(name)


def read_skills(project: str, folders: Sequence[str]) -> Skills:
    """The skills of a project and of folders."""

    return find_skills(project or None, folders)


def ask_skills(
    state: SkillsState,
    asked: SkillsAsked,
    project: str,
    path: Path,
    shown: Sequence[Node],
    holds: Callable[[str], bool],
) -> SkillRequest:
    """What is asked of skills for a request on a path that shows these results of the tool.
    `holds` tells whether a node is on the path.
    """

    request, ids = _request_of(path), {node.id for node in shown}
    return SkillRequest(
        skills=read_skills(project, asked.folders),
        wanted=asked.wanted,
        question=find_question(path),
        loaded=tuple(
            LoadedSkill(use.name, use.request == request, use.node in ids)
            for use in state.loaded
            if not use.node or holds(use.node)
        ),
        unloaded=frozenset(use.name for use in state.unloaded if use.request == request),
    )


def _request_of(path: Path) -> str:
    """The id of the newest request of the user on a path; "" if there is none."""
    place = path.end.request if path.end else None
    nodes = path.nodes([place]) if place is not None else ()
    return next((node.id for node in nodes), "")


class SessionSkills:
    """The skills of one session: those of the project that its last request named."""

    def __init__(
        self,
        read: Callable[[], SkillsState],
        keep: Callable[[SkillsState], None],
        path: Callable[[], Path],
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._read, self._keep, self._path, self._run = read, keep, path, run

    async def run_off_loop(self, work: Callable[[], _T]) -> _T:
        """Run work on these skills in a thread of the store."""
        made: _T = await self._run(work)
        return made

    def list_all(self) -> Skills:
        """The skills that there are, with what is wrong in their files."""
        state = self._read()
        return read_skills(state.project, state.folders)

    @checks_arguments
    def load(self, name: str) -> str:
        """The text of a skill. It stays in sight: in the history, and later in its zone."""
        skill = self.list_all().get(name)
        self._keep(self._read().load(SkillUse(skill.name, _request_of(self._path()))))
        return write_skill(skill, MAX_ACTIVE_TOKENS, gate_counter(None).count_text)

    @checks_arguments
    def unload(self, name: str) -> str:
        """Put a skill away. It is no longer in the request from the next epoch on. Returns its
        name.
        """
        skill = self.list_all().get(name)
        self._keep(self._read().unload(SkillUse(skill.name, _request_of(self._path()))))
        return skill.name

    def describe(self) -> str:
        """All skills as a list, a line each."""
        found = self.list_all().found
        count = gate_counter(None).count_text
        text = write_catalog(found, MAX_LISTED_TOKENS, count, "There are these skills:")
        return text or "There are no skills."

    adescribe = async_form(describe)
    alist_all = async_form(list_all)
    aload = async_form(load)
    aunload = async_form(unload)


def note_result(state: SkillsState, name: str, node: str) -> SkillsState:
    """The state that knows which node shows the skill that was loaded last."""
    if not state.loaded or state.loaded[0].name.casefold() != name.strip().casefold():
        return state
    return replace(state, loaded=(replace(state.loaded[0], node=node), *state.loaded[1:]))
