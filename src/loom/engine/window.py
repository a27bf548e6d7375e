"""Seed 000's door: `ContextWindow`, thin over `weave`."""

import warnings
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from msgspec.structs import replace

from loom.budget.chat import as_message
from loom.budget.counting import Counter, graphemes
from loom.budget.models import Overrides, model_limit
from loom.budget.profiles import SEEDS
from loom.budget.zones import DEFAULTS, Budget, BudgetOptions, allocate_budget
from loom.config.settings import resolve_configuration
from loom.context import (
    Context,
    NewestValues,
    Options,
    Section,
    build,
    check_options,
    find_policy,
    make_conversation,
)
from loom.conversation.checked import refuse_unknown
from loom.conversation.message import Conversation, Message, Text
from loom.engine.knowledge import find_question_in
from loom.engine.sources import (
    DecisionQuestion,
    add_notes,
    add_single_decisions,
    add_single_project,
    loses_single_rules,
)
from loom.errors import ChoiceError, ConfigError, StoreError, describe
from loom.stores import find_absent

if TYPE_CHECKING:
    from loom.engine.loom import Loom
else:
    Loom = Any  # it loads all that sessions need, and most calls need no store

_SYSTEM = ("system", "developer")
MAX_PLACEHOLDER_CHARS = 200  # of the words of a summary that no model made
_estimate = Counter(SEEDS["window"], remember=1)


class BuiltMessages(list[dict[str, Any]]):
    """Chat messages, with the context that they were made from: its report, and the way back to
    what was left out.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context.openai()["messages"])
        self.context = context

    def recall(self, handle: str) -> str:
        """What was left out under this handle."""
        return self.context.recall(handle)


class BuildOptions(TypedDict, total=False):
    """The options of `ContextWindow.build_messages`: what goes in, and those of a budget."""

    # Name of the model, as `provider:model` or alone.
    model: str | None
    # Session whose decisions go in, with those of its project.
    session_id: str | None
    # Folder whose decisions, map and rules go in.
    project_path: str | PathLike[str] | None
    # Store that has the decisions: a path or a URL (default: as for `Loom.open`). One that is not
    # there is not created.
    store: str | PathLike[str] | None
    # An open `Loom` instead of a store; its tenant and project are used.
    loom: Loom | None
    sections: Iterable[Section | tuple[str, str]]
    max_tokens: int | None
    max_decision_tokens: int
    max_repo_map_tokens: int
    reserved_output: int
    tool_definitions: int
    window: int
    zones: Mapping[str, int]
    overrides: Overrides


_NOT_OF_BUDGET = (
    "model",
    "session_id",
    "project_path",
    "store",
    "loom",
    "sections",
    "max_tokens",
)
# Conversations whose evicted messages were warned about, by their sessions or first messages.
_warned = NewestValues(limit=256)


class ContextWindow:
    """The names that seed 000 prints."""

    @staticmethod
    def build_messages(
        messages: Iterable[Message | Mapping[str, Any]],
        system_prompt: str,
        **options: Unpack[BuildOptions],
    ) -> BuiltMessages:
        """One system message and the newest messages that fit, as chat dictionaries; `recall` of
        the list brings back the others.

        The system message has the prompt, and then what is known of the session and the project:
        decisions, map and rules. Decisions are looked for if a session or a project is named.

        System messages of the list become part of the one. `max_tokens` is the legacy limit: it
        stands for the window, and history gets what system text and answer leave of it.

        If more than 50 messages are left out, a warning says so, once for each conversation.
        """
        refuse_unknown("build_messages", options, BuildOptions)
        model, max_tokens = options.get("model"), options.get("max_tokens")
        sizes = cast(
            "BudgetOptions",
            {name: value for name, value in options.items() if name not in _NOT_OF_BUDGET},
        )
        sizes, notes = _add_configured(sizes, options)
        policy, budget = find_policy("window"), allocate_budget(model, **sizes)
        zones = {
            name: tokens
            for name, tokens in budget.items()
            if name not in ("history", "reserved_output")
        }
        window, reserve = budget.window, budget.reserved_output
        if max_tokens is not None:
            sizes["max_tokens"] = max_tokens
            window = allocate_budget(model, **sizes).window
            policy = replace(policy, history="rest")  # no zones are set aside
            # A reserve that nobody asked for must not take a small window.
            reserve = sizes.get("reserved_output", min(DEFAULTS["reserved_output"], window // 4))
        given, _ = make_conversation(messages, None, None)
        given = _with_one_system_text(given, system_prompt, policy.separator)
        wish = check_options(
            model=model,
            window=window,
            reserve_output=reserve,
            policy=policy,
            sections=options.get("sections", ()),
            zones=zones,
        )
        wish = _add_decisions(wish, given, options)
        project_path = options.get("project_path")
        if project_path is not None:
            is_sized = "max_repo_map_tokens" in sizes or "repo_map" in sizes.get("zones", {})
            wish, built = _build_with_project(wish, given, project_path, is_sized)
        else:
            built = build(given, replace(wish, bare=True), (), None)
        _warn_of_evicted(built, options.get("session_id"), given)
        return BuiltMessages(add_notes(built, (*wish.notes, *notes)))

    @staticmethod
    def allocate_budget(model: str | None = None, **options: Any) -> Budget:
        return allocate_budget(model, **options)

    @staticmethod
    def model_limit(model: str | None) -> int:
        return model_limit(model)

    @staticmethod
    def summarize_old_messages(messages: Iterable[Message | Mapping[str, Any]]) -> str:
        """How evicted messages begin, as seed 000 prints it; a session that has a model summarizes
        with it.
        """
        contents = [_content(as_message(message)) for message in messages]
        words = " ".join(contents)
        cut = MAX_PLACEHOLDER_CHARS
        most = min(len(words), 10 * MAX_PLACEHOLDER_CHARS)
        while cut < most and graphemes(words[: cut + 1]) <= MAX_PLACEHOLDER_CHARS:
            cut += 1
        return f"Summary of {len(contents)} earlier messages: {words[:cut]}..."

    @staticmethod
    def estimate_tokens(text: str) -> int:
        """Seed 000's estimate: four characters a token."""
        return _estimate.count_text(text)


def _build_with_project(
    wish: Options, given: Conversation, project: str | PathLike[str], is_map_sized: bool
) -> tuple[Options, Context]:
    """The options with a map and rules, and the request. Rules that a message carries are not
    repeated, if the request shows that message.
    """
    full = add_single_project(wish, given, project, is_map_sized, given.messages)
    built = build(given, replace(full, bare=True), (), None)
    if loses_single_rules(full, given, project, built):
        full = add_single_project(wish, given, project, is_map_sized)
        built = build(given, replace(full, bare=True), (), None)
    return full, built


def _add_configured(
    sizes: BudgetOptions, options: BuildOptions
) -> tuple[BudgetOptions, tuple[str, ...]]:
    """Sizes with those that the folder of the project configures, where the caller names none;
    and what is wrong with its configuration.
    """
    project = options.get("project_path")
    if project is None:
        return sizes, ()
    try:
        configured = resolve_configuration(project).budget_sizes()
    except ConfigError as error:
        return sizes, (f"{error}; nothing of the configuration is used",)
    zones = {**configured.pop("zones", {}), **sizes.get("zones", {})}
    if options.get("max_tokens") is not None:
        configured.pop("window", None)
    filled = {**configured, **sizes}
    if zones:
        filled["zones"] = zones
    return cast("BudgetOptions", filled), ()


def _add_decisions(wish: Options, given: Conversation, options: BuildOptions) -> Options:
    """The options with decisions of the session and the project, if one is named."""
    session, project = options.get("session_id"), options.get("project_path")
    if session is None and project is None:
        return wish
    _check_decision_options(options)
    loom, store = options.get("loom"), options.get("store")
    if loom is not None:
        return _add_stored_decisions(wish, given, loom, session or "", project)
    url = None if store is None else fspath(store)
    absent = find_absent(url)
    if absent and store is None:
        return wish
    if absent:
        return replace(wish, notes=(*wish.notes, f"no decisions: there is no store at {absent}"))
    from loom.engine.loom import Loom as Opener

    try:
        with Opener.open(url) as opened:
            return _add_stored_decisions(wish, given, opened, session or "", project)
    except StoreError as error:
        if store is not None:
            raise
        # Who names no store need not have one that can be read.
        return replace(wish, notes=(*wish.notes, f"no decisions: {error}"))


def _check_decision_options(options: BuildOptions) -> None:
    """Refuse what names neither a session, nor a store, nor an open Loom."""
    from loom.engine.loom import Loom as Opener

    session, loom, store = options.get("session_id"), options.get("loom"), options.get("store")
    if session is not None and not isinstance(session, str):
        raise ChoiceError(f"session_id must be the id of a session, found {describe(session)}")
    if loom is not None and not isinstance(loom, Opener):
        raise ChoiceError(f"loom must be an open Loom, found {describe(loom)}")
    if loom is not None and store is not None:
        raise ChoiceError("give an open Loom or a store, not both")
    if store is not None and not isinstance(store, str | PathLike):
        raise ChoiceError(f"store must be a path or a URL, found {describe(store)}")


def _add_stored_decisions(
    wish: Options,
    given: Conversation,
    loom: Loom,
    session: str,
    folder: str | PathLike[str] | None,
) -> Options:
    """The same with those of a store. A session that names no project has one of its own."""
    if folder is None:
        folder = _find_own_folder(loom, session)
    scope = replace(loom.decisions.of_folder(folder).scope, session=session)
    question = DecisionQuestion(scope, session, find_question_in(given.messages))
    wish = _note_unknown(wish, loom, session)
    caches = wish.caches
    made = add_single_decisions(replace(wish, caches=loom.caches), given, loom.store, question)
    return replace(made, caches=caches)


def _note_unknown(wish: Options, loom: Loom, session: str) -> Options:
    """The options with a note if there is no such session."""
    if not session:
        return wish
    try:
        loom.session(session)
    except ChoiceError as error:
        return replace(wish, notes=(*wish.notes, str(error)))
    return wish


def _find_own_folder(loom: Loom, session: str) -> str:
    try:
        return loom.session(session).decisions.folder
    except ChoiceError:
        return ""


def _warn_of_evicted(context: Context, session: str | None, given: Conversation) -> None:
    """Warn of many messages that are left out, once for each conversation."""
    report = context.report
    if report.dropped <= find_policy("window").warn_past_dropped:
        return
    first = given.messages[0] if given.messages else None
    is_new = []
    _warned.get_or_make(("session", session) if session else first, lambda: is_new.append(True))
    if is_new:
        text = f"{report.dropped} messages evicted—consider summarization or archiving"
        warnings.warn(text, stacklevel=3)


def _with_one_system_text(given: Conversation, prompt: str, separator: str) -> Conversation:
    """The conversation with the prompt and the texts of all its system messages as one, ahead of
    it: providers refuse several.
    """
    told = [*given.system, *(message for message in given.messages if message.role in _SYSTEM)]
    text = separator.join(filter(None, (prompt, *(message.text for message in told))))
    return replace(
        given,
        system=(Message("system", (Text(text),)),) if text else (),
        messages=tuple(message for message in given.messages if message.role not in _SYSTEM),
    )


def _content(message: Message) -> str:
    inner = [
        part.text for result in message.results for part in result.parts if isinstance(part, Text)
    ]
    if message.results:
        return "\n".join(inner)
    return message.text
