"""A decision and an edge between two decisions, as callers meet them.

Rules of this file:
- Everything in the graph is a `Decision`; its `kind` says whether it is a goal, an option and so
  on.
- An id is a hash of where a decision belongs, what it says and what it was logged under, so that
  logging it again finds it. Status, confidence, times and links are not inside it. `generation`
  tells apart what was logged again after it was superseded or abandoned.
- Titles are one line. What is too long is refused, never cut.
"""

import re
from base64 import b32encode
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct, field

from loom.conversation.canonical import to_sorted_json
from loom.conversation.checked import CheckedStruct, check_fields
from loom.conversation.identity import is_node_id
from loom.conversation.metadata import write_metadata
from loom.conversation.names import check_name, flatten
from loom.conversation.repeats import normal_text
from loom.errors import ChoiceError, describe, shorten

DecisionKind = Literal["goal", "decision", "option", "action", "outcome", "observation", "revisit"]
DecisionStatus = Literal["active", "superseded", "abandoned"]
EdgeKind = Literal[
    "leads_to",
    "chosen",
    "rejected",
    "requires",
    "blocks",
    "enables",
    "supersedes",
    "supports",
    "revises",
    "summarizes",
]
Confidence = Annotated[int, Meta(ge=0, le=100)]
KINDS: tuple[DecisionKind, ...] = get_args(DecisionKind)
STATUSES: tuple[DecisionStatus, ...] = get_args(DecisionStatus)
EDGE_KINDS: tuple[EdgeKind, ...] = get_args(EdgeKind)
# The kinds that are listed as recent decisions.
RECENT_KINDS: tuple[DecisionKind, ...] = ("decision", "option", "action")
LOW_CONFIDENCE = 50  # per cent: below it, what depends on a decision is uncertain too
UNCERTAIN = "upstream_uncertainty"  # in the metadata of what depends on an uncertain decision
MAX_TITLE_CHARS = 300
MAX_DESCRIPTION_CHARS = 8000
MAX_RATIONALE_CHARS = 2000
MAX_LINKS = 100  # commits, and nodes, of a decision
MAX_WEIGHT = 1_000_000.0
# Joiners are not among them: many scripts need these.
_HIDDEN_SIGNS = dict.fromkeys(
    (0x200B, 0x200E, 0x200F, 0x2060, 0xFEFF, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
)
_ID_BYTES = 10
ID_CHARS = _ID_BYTES * 8 // 5
_ID = re.compile(f"[a-z2-7]{{{ID_CHARS}}}")
_COMMIT = re.compile("[0-9a-f]{7,40}|[0-9a-f]{64}")


class Decision(CheckedStruct, frozen=True, kw_only=True):
    """A goal, decision, option, action, outcome, observation or revisit.

    `folder` is the folder of the project that it belongs to, `session` the session in which it was
    logged, `agent` the name of who logged it; each may be empty. `parent` is the id of what it was
    logged under. `commits` are hashes of commits, `nodes` are messages, as `TREE/ID`. `sessions`
    are other sessions that logged it again. Times are milliseconds since 1970, UTC; `updated` is
    when its status, confidence, metadata or links last changed. `purged` says that its words were
    deleted.
    """

    id: str
    kind: DecisionKind
    title: str
    description: str = ""
    status: DecisionStatus = "active"
    confidence: Confidence | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    agent: str = ""
    session: str = ""
    folder: str = ""
    parent: str = ""
    generation: Annotated[int, Meta(ge=0)] = 0
    commits: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    created: int = 0
    updated: int = 0
    purged: bool = False

    @property
    def is_uncertain(self) -> bool:
        """Whether it depends on a decision of low confidence."""
        return self.metadata.get(UNCERTAIN) is True


class DecisionEdge(CheckedStruct, frozen=True, kw_only=True):
    """An edge from one decision to another, by their ids; `rationale` says why it is there."""

    source: str
    target: str
    kind: EdgeKind
    weight: float = 1.0
    rationale: str = ""
    agent: str = ""
    session: str = ""
    created: int = 0


class DecisionBody(CheckedStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The words and the links of a decision: what a purge removes."""

    title: str
    description: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    commits: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        check_title(self.title)
        check_words("description", self.description, MAX_DESCRIPTION_CHARS)
        if self.metadata:
            write_metadata(self.metadata)
        if self.commits and tuple(check_commits(self.commits)) != self.commits:
            raise ChoiceError("the commits of a decision are in lower case, each once")
        if self.nodes and tuple(check_nodes(self.nodes)) != self.nodes:
            raise ChoiceError("the nodes of a decision are named once")
        if tuple(_check_list("sessions", self.sessions)) != self.sessions:
            raise ChoiceError("the sessions of a decision are named once")
        for each in self.sessions:
            check_name("session", each)


class NewDecision(CheckedStruct, frozen=True, kw_only=True):
    """A decision that is logged."""

    body: DecisionBody
    kind: DecisionKind
    confidence: Confidence | None = None
    agent: str = ""
    session: str = ""
    folder: str = ""
    parent: str = ""
    generation: Annotated[int, Meta(ge=0)] = 0


class NewEdge(CheckedStruct, frozen=True, kw_only=True):
    """An edge that is made."""

    kind: EdgeKind = "leads_to"
    weight: float = 1.0
    rationale: str = ""
    agent: str = ""
    session: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        check_words("rationale", self.rationale, MAX_RATIONALE_CHARS)
        if not 0 <= self.weight <= MAX_WEIGHT:
            raise ChoiceError(
                f"the weight of an edge must be from 0 to {MAX_WEIGHT:,.0f}, found {self.weight}"
            )


class DecisionGraph(Struct, frozen=True):
    """Decisions, the oldest first, and the edges between them; `left_out` counts decisions that
    are not in it because of a limit.
    """

    decisions: tuple[Decision, ...] = ()
    edges: tuple[DecisionEdge, ...] = ()
    left_out: int = 0


def decision_id(new: NewDecision) -> str:
    """The id of a decision."""
    said = [
        new.folder,
        new.session,
        new.kind,
        normal_text(new.body.title),
        normal_text(new.body.description),
        new.parent,
        new.generation,
    ]
    digest = blake2b(
        to_sorted_json(said).encode(errors="surrogatepass"),
        digest_size=_ID_BYTES,
        person=b"decision",
    )
    return b32encode(digest.digest()).decode().lower()


def is_decision_id(name: str) -> bool:
    """Whether a text has the form of an id of a decision."""
    return _ID.fullmatch(name) is not None


def title_key(title: str) -> str:
    """What titles that say the same have in common, whatever their case and their spaces."""
    said = normal_text(title).encode(errors="surrogatepass")
    return b32encode(blake2b(said, digest_size=_ID_BYTES, person=b"title").digest()).decode()


# What is given


def to_title(given: object) -> str:
    """A title as it is stored: one line."""
    if not isinstance(given, str):
        raise ChoiceError(f"the title of a decision must be a text, found {describe(given)}")
    return check_title(_flatten_title(given))


def check_title(title: str) -> str:
    """A title that is one line and not too long."""
    if not title:
        raise ChoiceError("a decision needs a title: say in a few words what was decided")
    if len(title) > MAX_TITLE_CHARS:
        raise ChoiceError(
            f"the title of a decision has at most {MAX_TITLE_CHARS} characters, found "
            f"{len(title):,}; put the rest into its description"
        )
    if _flatten_title(title) != title:
        raise ChoiceError(f"the title of a decision is one line, found {shorten(title)!r}")
    return title


def _flatten_title(text: str) -> str:
    """A title on one line, without signs that hide words or turn them around."""
    return " ".join(flatten(text.translate(_HIDDEN_SIGNS)).split())


def check_words(what: str, text: str, limit: int) -> str:
    """A text that is not too long."""
    if len(text) > limit:
        raise ChoiceError(f"the {what} has at most {limit:,} characters, found {len(text):,}")
    return text


def check_commits(given: object) -> list[str]:
    """Hashes of commits, each once."""
    return [_check_commit(each) for each in _check_list("commits", given)]


def _check_commit(given: str) -> str:
    commit = given.strip().lower()
    if not _COMMIT.fullmatch(commit):
        raise ChoiceError(
            f"commits: {shorten(given)!r} is not the hash of a commit; give 7 to 40 (or 64) "
            "characters from 0-9 and a-f, as git log prints them"
        )
    return commit


def check_nodes(given: object) -> list[str]:
    """Names of nodes as `TREE/ID`, each once."""
    return [_check_node(each) for each in _check_list("nodes", given)]


def _check_node(given: str) -> str:
    tree, mark, node = given.rpartition("/")
    if not (tree and mark and is_node_id(node)) or flatten(given) != given:
        raise ChoiceError(
            f"nodes: {shorten(given)!r} does not name a message; give TREE/ID, as in dxy4c2kq/1:…"
        )
    return given


def _check_list(what: str, given: object) -> list[str]:
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ChoiceError(f"{what} must be a list of texts, found {describe(given)}")
    found: dict[str, None] = {}
    for each in given:
        if not isinstance(each, str):
            raise ChoiceError(f"{what} must be a list of texts, found {describe(each)} in it")
        found[each] = None
    if len(found) > MAX_LINKS:
        raise ChoiceError(f"a decision has at most {MAX_LINKS} {what}, found {len(found):,}")
    return list(found)
