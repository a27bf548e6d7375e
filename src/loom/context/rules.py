"""Rules of a policy for a role or a tool: what always stays, and how many results of a tool are
shown.

Rules of this file:
- A message that a rule keeps is pinned: it is in the request, and it is shrunk only where nothing
  else can give.
- A result that a rule hides keeps its place and its call. Its words are left out behind a handle,
  whatever room there is.
- A rule looks at the whole history that was read, so a newer result of a tool hides an older one.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import Counter
from loom.context.handles import Archive
from loom.context.history.places import EVERYWHERE, Places
from loom.context.report import Item, Piece
from loom.conversation.canonical import to_json
from loom.conversation.checked import check_number, choose
from loom.conversation.message import ROLES, Media, Message, Text, ToolResult
from loom.errors import ChoiceError

MIN_HIDDEN_CHARS = 60  # characters of a text that is worth a marker
HIDDEN_BY_RULE = "the policy shows only the newest"


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule of a policy for a role or for a tool. It says either `keep` or `show_last`.

    `tool` is a name or a pattern such as `browser_*`.
    """

    # Role of the messages: user, assistant, tool, system or developer.
    role: str = ""
    # Name of a tool, or a pattern.
    tool: str = ""
    # How many of the newest messages always stay: a number, or "all".
    keep: int | Literal["all"] | None = None
    # How many of the newest results are shown; older ones are replaced by a marker.
    show_last: int | None = None

    def __post_init__(self) -> None:
        if bool(self.role) == bool(self.tool):
            raise ChoiceError("a rule names either a role or a tool")
        if self.role:
            choose("the role of a rule", self.role, ROLES)
        if (self.keep is None) == (self.show_last is None):
            raise ChoiceError(f"a rule for {self.subject} says either keep or show_last")
        if self.role and self.show_last is not None:
            raise ChoiceError(
                f"a rule for {self.subject} cannot say show_last; that is for the results of a tool"
            )
        if self.keep is None:
            check_number(f"show_last of a rule for {self.subject}", self.show_last, 1)
        elif self.keep != "all":
            check_number(f"keep of a rule for {self.subject}", self.keep, 1)

    @property
    def subject(self) -> str:
        """What it is about, in words."""
        if self.role:
            return f"the role {self.role!r}"
        return f"the tool {self.tool!r}"


class RuledHistory(Struct, frozen=True):
    """A history as rules leave it: its messages, and which of them are kept."""

    messages: tuple[Message, ...]
    kept: tuple[int, ...]


def apply_rules(
    rules: Sequence[Rule], messages: tuple[Message, ...], places: Places, archive: Archive
) -> RuledHistory:
    """Find what rules keep in a history, and hide what they hide. Of what was not read nothing is
    known.
    """
    tools = find_tools(messages)
    hidden = {
        found
        for rule in rules
        if rule.show_last
        for found in _find_hidden(rule, messages, tools, places)
    }
    made = list(messages)
    for index, part in sorted(hidden):
        made[index] = _hide_result(made[index], index, part, archive)
    archive.originals = {
        index: messages[index] for index, _ in hidden if made[index] != messages[index]
    }
    return RuledHistory(tuple(made), find_kept(rules, messages, places))


def find_kept(
    rules: Sequence[Rule], messages: Sequence[Message], places: Places = EVERYWHERE
) -> tuple[int, ...]:
    """The messages that rules keep, by their indexes."""
    tools = find_tools(messages)
    kept: set[int] = set()
    for rule in rules:
        if rule.keep is None:
            continue
        found = [
            n
            for n, message in enumerate(messages)
            if not places.unread(n) and matches(rule, message, tools[n])
        ]
        kept.update(found[-rule.keep :] if isinstance(rule.keep, int) else found)
    return tuple(sorted(kept))


def find_tools(messages: Sequence[Message]) -> list[tuple[str, ...]]:
    """For each message the tool that each of its results comes from, else the tools that it
    calls.
    """
    names: dict[str, str] = {}
    found: list[tuple[str, ...]] = []
    for message in messages:
        names.update((call.id, call.name) for call in message.calls)
        if message.results:
            found.append(
                tuple(names.get(result.call_id, result.name) for result in message.results)
            )
        else:
            found.append(tuple(call.name for call in message.calls))
    return found


def matches(rule: Rule, message: Message, tools: Sequence[str]) -> bool:
    """Whether a rule is about a message: its role, or a tool whose result is in it."""
    if rule.role:
        return message.role == rule.role
    return bool(message.results) and any(fnmatchcase(name, rule.tool) for name in tools)


def _find_hidden(
    rule: Rule, messages: Sequence[Message], tools: Sequence[tuple[str, ...]], places: Places
) -> list[tuple[int, int]]:
    """The results of a tool that are older than those that are shown: each by its message and its
    part.
    """
    assert rule.show_last is not None
    found: list[tuple[int, int]] = []
    for index, message in enumerate(messages):
        if places.unread(index):
            continue
        parts = [n for n, part in enumerate(message.parts) if isinstance(part, ToolResult)]
        named = zip(parts, tools[index], strict=False)
        found += [(index, part) for part, name in named if fnmatchcase(name, rule.tool)]
    return found[: -rule.show_last]


def _hide_result(message: Message, index: int, part: int, archive: Archive) -> Message:
    """The message without the words of one of its results. What is shorter than a marker stays."""
    result = message.parts[part]
    assert isinstance(result, ToolResult)
    inner = list(result.parts)
    for n, piece in enumerate(inner):
        if isinstance(piece, Text) and len(piece.text) > MIN_HIDDEN_CHARS:
            handle = archive.keep_part(index, f"{part}.{n}", piece.text)
            inner[n] = Text(f"[an older result left out; recall {handle}]")
        elif isinstance(piece, Media):
            handle = archive.keep_part(index, f"{part}.{n}", to_json(piece))
            inner[n] = Text(f"[an older {piece.kind} left out; recall {handle}]")
    changed = replace(result, parts=tuple(inner))
    return replace(message, parts=(*message.parts[:part], changed, *message.parts[part + 1 :]))


def list_items(pieces: Sequence[Piece], counter: Counter, archive: Archive) -> list[Item]:
    """The items of pieces. What a rule hid in a message is cut, whatever else became of it."""
    made: list[Item] = []
    originals = archive.originals
    for piece in pieces:
        for index, item in enumerate(piece.items, piece.span.start):
            if index in originals and item.action == "kept":
                before, handles = (
                    counter.count_message(originals[index]),
                    tuple(sorted(archive.parts_of(index))),
                )
                item = replace(
                    item, action="shrunk", rule=HIDDEN_BY_RULE, before=before, handles=handles
                )
            made.append(item)
    return made
