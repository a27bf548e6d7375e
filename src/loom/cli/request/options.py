"""What `loom weave` and `loom explain` are asked for: a transcript, a kept session or a kept tree,
and how to weave it.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from msgspec import Struct
from msgspec.structs import replace

from loom.budget.models import Overrides
from loom.cli.request.budget import read_several
from loom.cli.settings.models import user_overrides
from loom.cli.settings.reading import read_configuration
from loom.cli.store.where import PROJECT_VARIABLE, Where, add_scope_options
from loom.cli.terminal import dim, reading, say
from loom.cli.text_input import parse_source
from loom.config.settings import Configuration
from loom.context import Context, Options, Policy, RequestOptions, Section, check_options
from loom.context import weave as weave_request
from loom.conversation.message import Conversation, Message
from loom.dialects import dialect_of_model
from loom.engine.knowledge import find_question_in
from loom.engine.remembered import take_defaults
from loom.engine.sources import (
    DecisionQuestion,
    add_notes,
    add_single_decisions,
    add_single_project,
    choose_single_skills,
    loses_single_rules,
    read_project,
)
from loom.errors import CannotFit, ChoiceError, ConfigError, StoreError
from loom.providers.knowledge import to_sections
from loom.stores import SessionRow
from loom.transcripts.runs import Run

KNOWLEDGE_SECONDS = 10.0  # a person who looks waits longer than an agent


class Subject(Struct, frozen=True):
    """What was woven: what to call it, what it was read from, and the wire that it speaks."""

    title: str
    kind: str
    wire: str


class WeaveCommand(Struct, frozen=True, kw_only=True):
    """What a command was asked to weave, and how."""

    file: str | None
    session: str | None
    tree: str | None
    at: str | None
    include: tuple[str, ...]
    sources: tuple[str, ...]
    pins: tuple[str, ...]
    where: Where
    model: str | None
    window: int | None
    reserve: int | None
    policy: str | None
    project: Path | None = None
    map_tokens: int | None = None
    skills: tuple[str, ...] = ()
    skill_folders: tuple[Path, ...] = ()
    knowledge: bool = False

    def weave_all(self) -> tuple[Iterator[tuple[Subject, Context]], bool]:
        """What was woven, and whether a file has several runs: those are told a line each."""
        overrides = user_overrides()
        self._check()
        if self.project:
            for told in read_project(self.project, reading()):
                say(dim(told), err=True)
        chosen: str | Policy | None = self.policy
        if self.policy and self.policy.endswith(".toml"):
            chosen = read_policy(self.policy)
        if self.tree is not None:
            return iter([self._tree(self.tree, chosen, overrides)]), False
        if self.session is not None:
            return iter([self._session(self.session, chosen, overrides)]), False
        assert self.file is not None
        read = read_configuration(self.project or ".")
        configured = read.settings
        usual = chosen or configured.policy or "default"
        runs, several = read_several(self.file)
        defaults = take_defaults(configured)

        def weave_run(run: Run) -> Context:
            with defaults.name_origins():
                asked = self._fill_options(run, overrides, configured)
                return add_notes(self._run(run, usual, asked), read.notes)

        return ((_subject(run), weave_run(run)) for run in runs), several

    def _fill_options(
        self, run: Run, overrides: Overrides, configured: Configuration
    ) -> RequestOptions:
        """The options of a transcript: what is configured holds where the command names nothing.
        The model that the transcript names is stronger.
        """
        asked = self._options(overrides)
        if asked["model"] is None and not run.head.model:
            asked["model"] = configured.model
        if asked["window"] is None:
            asked["window"] = configured.window
        if asked["reserve_output"] is None:
            asked["reserve_output"] = configured.reserve_output
        asked["zones"] = {**configured.zones, **(asked["zones"] or {})}
        return asked

    def _check(self) -> None:
        for option, value in (
            ("--at", self.at),
            ("--include", self.include),
            ("--source", self.sources),
        ):
            if value and self.tree is None:
                raise ChoiceError(f"{option} names a node of a tree; add --tree TREE")
        given = {"FILE": self.file, "--session": self.session, "--tree": self.tree}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            too_many = ""
            if named:
                too_many = f", not both {' and '.join(named)}"
            raise ChoiceError(f"give a FILE or --session ID or --tree TREE{too_many}")
        if self.map_tokens is not None and self.project is None:
            raise ChoiceError("--map-tokens limits the map of a project; add --project PATH")
        if self.map_tokens is not None and self.map_tokens < 1:
            raise ChoiceError(
                f"--map-tokens {self.map_tokens} leaves no room for a map; give at least 1, or "
                "omit --project"
            )
        if self.pins and self.file is not None:
            raise ChoiceError(
                "--pin names a message of a session or a tree; give --session ID or --tree TREE "
                "instead of a FILE"
            )

    def _options(self, overrides: Overrides) -> RequestOptions:
        """The options that every subject has. Those of a store are filled up by its session."""
        return RequestOptions(
            model=self.model,
            window=self.window,
            reserve_output=self.reserve,
            overrides=overrides,
            zones={} if self.map_tokens is None else {"repo_map": self.map_tokens},
        )

    def _run(self, run: Run, policy: str | Policy, asked: RequestOptions) -> Context:
        """The request of a run. Rules that a message carries are not repeated, if the request shows
        that message.
        """
        given = run.conversation()
        context = self._weave(run, given, policy, asked.copy(), given.messages)
        if self.project is None:
            return context
        options = check_options(policy=policy, **asked)
        if loses_single_rules(options, given, self.project, context):
            return self._weave(run, given, policy, asked, ())
        return context

    def _weave(
        self,
        run: Run,
        given: Conversation,
        policy: str | Policy,
        asked: RequestOptions,
        messages: Sequence[Message],
    ) -> Context:
        notes: tuple[str, ...] = ()
        if self.project:
            options = check_options(policy=policy, **asked)
            options = self._add_project(options, given, self.project, messages)
            asked["sections"], notes = options.sections, options.notes
        if self.project or self.skills or self.skill_folders:
            notes += self._add_skills(given, policy, asked)
        if self.knowledge:
            asked["sections"] = [*asked.get("sections", ()), *self._find_knowledge(given)]
        try:
            return add_notes(weave_request(given, policy=policy, **asked), notes)
        except CannotFit as error:
            if run.number or run.name:
                raise CannotFit(f"run #{run.number}: {error}") from None
            raise

    def _add_project(
        self, options: Options, given: Conversation, project: Path, messages: Sequence[Message]
    ) -> Options:
        """What is known of a project: decisions in a store, if there is one, the map and rules."""
        try:
            if not self.where.absent():
                options = self._add_decisions(options, given, project)
        except StoreError as error:
            if self.where.store is not None:
                raise
            # Who names no store need not have one that can be read.
            options = replace(options, notes=(*options.notes, f"no decisions: {error}"))
        except ConfigError as error:
            said = f"no decisions: {error.file} may name the store, and it is not used"
            options = replace(options, notes=(*options.notes, said))
        is_sized = self.map_tokens is not None
        return add_single_project(options, given, project, is_sized, messages)

    def _add_skills(
        self, given: Conversation, policy: str | Policy, asked: RequestOptions
    ) -> tuple[str, ...]:
        """Add the skills that the last request of a conversation asks for. Returns notes."""
        options = check_options(policy=policy, **asked)
        made = choose_single_skills(options, given, self.project, self.skills, self.skill_folders)
        asked["sections"] = [*asked.get("sections", ()), *made.sections]
        asked["zones"] = {**made.zones, **(asked.get("zones") or {})}
        return made.notes

    def _add_decisions(self, options: Options, given: Conversation, project: Path) -> Options:
        with self.where.open() as loom:
            scope = loom.decisions.of_folder(project).scope
            question = DecisionQuestion(scope, "", find_question_in(given.messages))
            return add_single_decisions(options, given, loom.store, question)

    def _find_knowledge(self, given: Conversation) -> list[Section]:
        """What the documents of the project say about the last request of a conversation."""
        with self.where.open() as loom:
            return to_sections(loom.knowledge.query(find_question_in(given.messages)))

    def _session(
        self, name: str, policy: str | Policy | None, overrides: Overrides
    ) -> tuple[Subject, Context]:
        with self.where.open() as loom:
            session = loom.session(name)
            asked = session.prepare(
                policy=policy,  # none: the one that the session remembers
                pins=self.pins,
                project=self.project,
                skills=self.skills,
                skill_folders=self.skill_folders,
                knowledge=self.knowledge,
                knowledge_seconds=KNOWLEDGE_SECONDS,
                preview=True,  # who looks must not disturb the agent that works
                **self._options(overrides),
            )
            subject = Subject(
                session.row.title, f"session {session.id}", _wire_of(session.row, self.model)
            )
            return subject, asyncio.run(asked)

    def _tree(
        self, name: str, policy: str | Policy | None, overrides: Overrides
    ) -> tuple[Subject, Context]:
        with self.where.open() as loom:
            tree = loom.tree(name)
            asked = tree.prepare(
                at=self.at,
                pins=self.pins,
                include=self.include,
                sources=[parse_source(loom, tree, source) for source in self.sources],
                project=self.project,
                skills=self.skills,
                skill_folders=self.skill_folders,
                knowledge=self.knowledge,
                knowledge_seconds=KNOWLEDGE_SECONDS,
                preview=True,
                policy=policy,  # none: as the tree's preferences say
                **self._options(overrides),
            )
            context = asyncio.run(asked)
            buffer = tree.head.mode == "buffer"
            wire = "document"
            if not buffer:
                wire = _wire_of(tree.session().row, self.model or context.report.model)
            return Subject(tree.title, f"tree {tree.id}", wire), context


def read_policy(name: str) -> Policy:
    """The policy of a TOML file. An error names the file."""
    try:
        return Policy.from_toml(Path(name).read_text(encoding="utf-8"))
    except ChoiceError as error:
        raise ChoiceError(f"{name}: {error}") from None


def _subject(run: Run) -> Subject:
    return Subject(
        f"#{run.number} {run.name}" if run.number or run.name else "", run.format, run.wire
    )


def _wire_of(row: SessionRow, model: str | None) -> str:
    """The wire whose settings a session has, else that of its model."""
    if row.head.settings:
        return row.head.settings.wire
    return dialect_of_model(model or row.model)


def _project(where: Where, file: str | None) -> tuple[Where, Path | None]:
    """Whose things are meant, and the folder with code.

    Of a session a plain name is the project that it belongs to.
    """
    given = where.project
    if (
        click.get_current_context().get_parameter_source("project")
        is not ParameterSource.COMMANDLINE
    ):
        return where, None
    if file is None and os.sep not in given and not given.startswith((".", "~")):
        return where, None
    name = os.environ.get(PROJECT_VARIABLE) or "default"
    return replace(where, project=name, folder=given), Path(given)


def add_weave_options(command: Callable[..., None]) -> Callable[..., None]:
    """What `weave` and `explain` share."""

    @wraps(command)
    def run(file: str | None, where: Where, **given: Any) -> None:
        where, project = _project(where, file)
        asked = {name: given.pop(name) for name in WeaveCommand.__struct_fields__ if name in given}
        command(asked=WeaveCommand(file=file, where=where, project=project, **asked), **given)

    made = add_scope_options(
        run,
        project="Folder of code: its rules and a map of it go into the request (default: none). "
        "With --session or --tree, a name without / is not a folder (./NAME is): it names the "
        "project that holds the session or tree",
        agent="Act as this agent: see only its sessions, and read the tree as it does.",
    )
    for option in reversed(
        (
            click.argument("file", required=False),
            click.option(
                "--session",
                metavar="ID",
                help="Use a stored session instead of FILE. It is not changed.",
            ),
            click.option(
                "--tree",
                metavar="TREE",
                help="Use a stored tree instead of FILE, as --agent reads it. It is not changed.",
            ),
            click.option(
                "--at",
                metavar="NODE",
                help="Read the tree up to this node (default: the current node).",
            ),
            click.option(
                "--pin",
                "pins",
                metavar="NODE",
                multiple=True,
                help="Keep this node of the session or tree (repeatable).",
            ),
            click.option(
                "--include",
                metavar="NODE",
                multiple=True,
                help="Read this annotation of the tree, this time only (repeatable).",
            ),
            click.option(
                "--source",
                "sources",
                metavar="ROLE:NODE",
                multiple=True,
                help="Node that the answer is based on, as in `loom tree say` (repeatable).",
            ),
            click.option(
                "--model",
                metavar="NAME",
                help="Model that gets the request (default: the one named in the input).",
            ),
            click.option(
                "--window",
                type=int,
                metavar="TOKENS",
                help="Size of the whole window (default: the model's window).",
            ),
            click.option(
                "--reserve",
                type=int,
                metavar="TOKENS",
                help="Part of the window reserved for the answer (default: as the policy says).",
            ),
            click.option(
                "--policy",
                metavar="NAME",
                help="Policy name or TOML file (see `loom policy list`). Default: the policy that "
                "the session used last, "
                "or the preferences of the tree, or `default`.",
            ),
            click.option(
                "--map-tokens",
                type=int,
                metavar="TOKENS",
                help="Largest size of the map of --project (default: 2048).",
            ),
            click.option(
                "--skill",
                "skills",
                metavar="NAME",
                multiple=True,
                help="Put in this skill, whatever the request says (repeatable; see `loom skills "
                "list`).",
            ),
            click.option(
                "--skill-folder",
                "skill_folders",
                multiple=True,
                type=click.Path(exists=True, file_okay=False, path_type=Path),
                help="One more folder of skills (repeatable).",
            ),
            click.option(
                "--knowledge",
                is_flag=True,
                help="Put in what the documents of the project say about the request "
                "(see `loom knowledge`).",
            ),
        )
    ):
        made = option(made)
    return made
