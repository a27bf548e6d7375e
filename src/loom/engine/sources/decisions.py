"""What was decided in a project, in the requests of a session.

Rules of this file:
- A request sees the decisions of its own project and folder only.
- If the policy has the zone `decision_context` in its tail, the section is written for each
  request, by what that asks. Else it is in the system text, as it was when the epoch began, and
  what changed since is in the tail.
- What is written is kept until the graph or the question changes.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import gate_counter
from loom.context import Options, Section, budget_for
from loom.conversation.message import Conversation
from loom.decisions.section import (
    INTRODUCTION,
    MAX_RECENT,
    DecisionLists,
    DecisionSection,
    SectionForm,
    is_shown,
    write_changes,
    write_section,
)
from loom.decisions.values import RECENT_KINDS, Decision
from loom.decisions.verdicts import Verdict, find_verdicts
from loom.engine.knowledge import find_question
from loom.engine.notes import find_asked_terms
from loom.engine.sources.asking import NOTHING, Asking, SourceSections
from loom.engine.views import EpochText
from loom.recall.importance import choose_candidates, score_note
from loom.recall.question import find_content_terms
from loom.stores import DecisionScope, Store

NAME, ZONE, TAIL_ZONE = "decisions", "decision_context", "decision_update"
ORIGIN = "decisions"
# Of the newest goals and entries of a session, one is looked at for so many tokens of the section.
TOKENS_PER_GOAL, TOKENS_PER_ENTRY, MAX_LISTED = 10, 20, 1000
MIN_LISTED = 20
MAX_RECENT_READ = 20  # newest decisions among which those are that are shown
MAX_PRIOR = 10  # newest attempts that are looked at
MAX_LESSONS = 5
MAX_EARLIER = 5  # decisions that are not recent and matter to the request
MAX_TERMS = 24  # of a question, by which decisions are looked for
MAX_CANDIDATES = 30
MIN_SCORE = 0.2  # of a decision that matters to a request
MAX_DECISION_TERMS = 200
MAX_UPDATE_TOKENS = 256  # of what changed since the epoch began
MAX_GROWTH_TOKENS = 256  # that an epoch leaves free for decisions of its later requests
MAX_SHARE = 16  # of what is usable: the part that either of these may take


class DecisionQuestion(Struct, frozen=True):
    """Whose decisions are shown, and for which request."""

    scope: DecisionScope
    session: str = ""
    asked: str = ""


def gather(asking: Asking) -> SourceSections:
    """The section, and what changed since it was written."""
    if not _may_have_decisions(asking):
        return NOTHING
    if is_in_tail(asking.options):
        return _gather_tail(asking)
    return _gather_frozen(asking)


def begin(asking: Asking) -> EpochText | None:
    """The section in the system text of an epoch that begins, with what it was made of; None if the
    policy has it in the tail.
    """
    if is_in_tail(asking.options) or not _may_have_decisions(asking):
        return None
    made = _write_for(asking)
    revision = asking.store.decisions.revision(_scope(asking))
    return EpochText(
        made.text, (str(revision), str(asking.style.now), *_name_place(asking), *made.shown)
    )


def count_decisions(asking: Asking) -> int:
    """The tokens that decisions take in a request with which an epoch begins."""
    count = _counter(asking.options, asking.head)
    used = count_given(asking.options, asking.head)
    if not _may_have_decisions(asking):
        return used
    text = _write_for(asking).text
    return used + count(text) + Section.FRAME_TOKENS if text else used


def count_given(options: Options, head: Conversation) -> int:
    """The tokens of sections for the zone that the caller gives."""
    count = _counter(options, head)
    return sum(
        count(section.text) + Section.FRAME_TOKENS
        for section in options.sections
        if section.zone == ZONE
    )


def is_in_tail(options: Options) -> bool:
    return ZONE in options.policy.tail


def write_decisions(
    store: Store, question: DecisionQuestion, options: Options, head: Conversation
) -> DecisionSection:
    """The section for a request: as large as its zone, without what the caller has put there.

    The caches of the options belong to who opened the store.
    """
    revision = store.decisions.revision(question.scope)
    if not revision:
        return DecisionSection()
    zone = budget_for(options, head)[ZONE]
    if zone == 0:
        return DecisionSection(note="no decisions: their zone has 0 tokens")
    tokens = zone - count_given(options, head) - Section.FRAME_TOKENS
    in_tail = is_in_tail(options)
    values, model = options.caches.values, options.model or head.model
    made_of = (ZONE, question, revision, tokens, model, options.ratio, options.policy.name)

    def write() -> DecisionSection:
        lists = values.get_or_make(
            ("lists", question, revision, tokens, in_tail),
            lambda: find_decisions(store, question, tokens, with_earlier=in_tail),
        )
        form = SectionForm(
            tokens=tokens,
            count=_counter(options, head),
            write_time=write_time,
            names_empty=options.policy.map == "seed",
            introduction=INTRODUCTION if in_tail else "",
        )
        return write_section(lists, form)

    return values.get_or_make(made_of, write)


def add_single_decisions(
    options: Options, given: Conversation, store: Store, question: DecisionQuestion
) -> Options:
    """The options with decisions for a request that is on its own."""
    made = write_decisions(store, question, options, given)
    sections = (Section(ZONE, made.text, ORIGIN),) if made.text else ()
    notes = (made.note,) if made.note else ()
    return replace(options, sections=(*options.sections, *sections), notes=(*options.notes, *notes))


def find_decisions(
    store: Store, question: DecisionQuestion, tokens: int, *, with_earlier: bool
) -> DecisionLists:
    """The decisions that a section of so many tokens may show, and how much they matter to the
    request.
    """
    scope, found = question.scope, store.decisions
    scores, matching = _score(store, question)
    counts = found.count(scope, question.session)
    goals = _merge(
        found.active_goals(scope, _limit_listed(tokens, TOKENS_PER_GOAL)),
        [each for each in matching if each.kind == "goal" and each.status == "active"],
    )
    latest = [each for each in found.recent(scope, MAX_RECENT_READ) if is_shown(each)]
    prior = _merge(
        found.prior(scope, MAX_PRIOR),
        [each for each in matching if each.status != "active" or each.kind == "revisit"],
    )
    session: list[Decision] = []
    if question.session:
        most = _limit_listed(tokens, TOKENS_PER_ENTRY)
        session = found.of_session(scope, question.session, most)
    links = _find_links(store, scope, _merge(latest, matching, prior, session))
    rejected = {option for option, each in links.verdicts.items() if each.is_rejected}
    recent = [each for each in latest if each.id not in rejected][:MAX_RECENT]
    earlier = [
        each
        for each in matching
        if _is_recent_kind(each) and each not in recent and each.id not in rejected
    ]
    prior = _merge(prior, (each for each in (*latest, *matching) if each.id in rejected))
    prior = [each for each in prior if is_shown(each) and each.id not in links.resolved]
    lessons = _choose_lessons(prior, scores)
    return DecisionLists(
        goals=goals,
        recent=recent,
        earlier=_newest_first(earlier[:MAX_EARLIER]) if with_earlier else (),
        session=session,
        lessons=lessons,
        goals_total=counts.goals - _count_hidden(goals),
        session_total=counts.of_session - _count_hidden(session) if session else 0,
        has_uncounted=counts.has_more,
        scores=scores,
        replacements=_find_titles(store, scope, lessons, links),
        reasons=links.reasons,
        rejected=frozenset(rejected),
        verdicts=_describe_verdicts(store, scope, links.verdicts),
        judged={option: each.newest.created for option, each in links.verdicts.items()},
        folder=scope.folder,
    )


def _limit_listed(tokens: int, tokens_each: int) -> int:
    return min(max(MIN_LISTED, tokens // tokens_each), MAX_LISTED)


def write_time(moment: int) -> str:
    """A time as a section shows it, UTC."""
    return datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%d %H:%M")


# In requests


def _gather_tail(asking: Asking) -> SourceSections:
    """The section in the tail. If an epoch begins, room is left for decisions that are logged
    later.
    """
    if not asking.store.decisions.revision(_scope(asking)):
        return NOTHING
    made, ahead = _write_for(asking), 0
    if asking.begins:
        used = _counter(asking.options, asking.head)(made.text)
        budget = budget_for(asking.options, asking.head)
        ahead = max(0, min(_limit(asking, MAX_GROWTH_TOKENS), budget[ZONE] - used))
    return SourceSections(
        sections=(Section(ZONE, made.text, ORIGIN),) if made.text else (),
        ahead=ahead,
        notes=(made.note,) if made.note else (),
    )


def _gather_frozen(asking: Asking) -> SourceSections:
    """The section that the epoch began with, and in the tail what changed since."""
    began = asking.texts.get(NAME)
    if began and began.names[2:4] != _name_place(asking):
        # With another section the system text is another one, and the epoch ends.
        began = replace(began, text=_write_for(asking).text)
    sections = (Section(ZONE, began.text, ORIGIN),) if began and began.text else ()
    room = _limit(asking, MAX_UPDATE_TOKENS)
    if asking.begins:
        note = _write_for(asking).note
        ahead = room if sections else 0
        return SourceSections(sections=sections, ahead=ahead, notes=(note,) if note else ())
    changes = _write_update(asking, began, room - Section.FRAME_TOKENS)
    if changes:
        sections = (*sections, Section(TAIL_ZONE, changes, ORIGIN))
    return SourceSections(sections=sections)


def _name_place(asking: Asking) -> tuple[str, str]:
    """The folder whose decisions are shown, and the size that the caller gave the zone."""
    return asking.folder, str(asking.options.zones.get(ZONE, ""))


def _write_update(asking: Asking, began: EpochText | None, tokens: int) -> str:
    """What was logged or changed since the epoch began; "" if nothing was."""
    if began is None or budget_for(asking.options, asking.head)[ZONE] == 0:
        return ""
    revision, since, _, _, *shown = began.names
    if str(asking.store.decisions.revision(_scope(asking))) == revision:
        return ""
    lists = find_decisions(asking.store, _question(asking), tokens, with_earlier=False)
    listed = _merge(lists.goals, lists.recent, lists.session, lists.lessons)
    # In the same millisecond, only what the section does not show is new.
    changed = [
        each
        for each in listed
        if max(each.updated, lists.judged.get(each.id, 0)) >= int(since) + (each.id in shown)
    ]
    form = SectionForm(
        tokens=tokens, count=_counter(asking.options, asking.head), write_time=write_time
    )
    return write_changes([each for each in changed if is_shown(each)], lists, form)


def _write_for(asking: Asking) -> DecisionSection:
    return write_decisions(asking.store, _question(asking), asking.options, asking.head)


def _question(asking: Asking) -> DecisionQuestion:
    return DecisionQuestion(_scope(asking), asking.row.id, find_question(asking.path))


def _scope(asking: Asking) -> DecisionScope:
    tree = asking.row.tree
    return DecisionScope(tree.tenant, tree.project, asking.folder, asking.row.id)


def _may_have_decisions(asking: Asking) -> bool:
    """Whether a request may show decisions: a guest has none, nor has a text without roles."""
    return asking.row.key != 0 and not asking.style.document


def _limit(asking: Asking, tokens: int) -> int:
    return min(tokens, budget_for(asking.options, asking.head).usable // MAX_SHARE)


def _counter(options: Options, head: Conversation) -> Callable[[str], int]:
    return gate_counter(options.model or head.model or None, options.ratio).count_text


# What matters to the request


def _score(store: Store, question: DecisionQuestion) -> tuple[dict[str, float], Sequence[Decision]]:
    """How much decisions matter to the request, by their ids; and those that do, the best first."""
    asked = find_asked_terms(question.asked)
    half = MAX_TERMS // 2
    terms = asked if len(asked) <= MAX_TERMS else (*asked[:half], *asked[-half:])
    if not terms:
        return {}, ()
    matches = store.decisions.match(question.scope, terms)
    holding = {term: list(keys) for term, keys in matches.holding.items()}
    keys = choose_candidates(holding, matches.decisions, MAX_CANDIDATES, matches.counts)
    found = store.decisions.read(question.scope, keys).values()
    scores = {
        each.id: score_note(
            find_content_terms(f"{each.title}\n{each.description}", MAX_DECISION_TERMS),
            holding,
            matches.decisions,
            terms,
            matches.counts,
        )
        for each in found
    }
    ranked = sorted(
        (each for each in found if scores[each.id] >= MIN_SCORE and is_shown(each)),
        key=lambda each: (scores[each.id], each.created, each.id),
        reverse=True,
    )
    return scores, ranked


def _count_hidden(decisions: Iterable[Decision]) -> int:
    return sum(not is_shown(each) for each in decisions)


def _is_recent_kind(decision: Decision) -> bool:
    return decision.kind in RECENT_KINDS and decision.status == "active"


def _merge(*lists: Iterable[Decision]) -> list[Decision]:
    """The decisions of several lists, each once, the newest first."""
    return _newest_first({each.id: each for found in lists for each in found}.values())


def _newest_first(decisions: Iterable[Decision]) -> list[Decision]:
    """Decisions, the newest first; of those that were logged at once, as they are given."""
    return sorted(decisions, key=lambda each: each.created, reverse=True)


def _choose_lessons(prior: Sequence[Decision], scores: dict[str, float]) -> list[Decision]:
    """The attempts that matter to the request, and then the newest; newest first."""
    ranked = sorted(prior, key=lambda each: scores.get(each.id, 0.0), reverse=True)
    return _newest_first(ranked[:MAX_LESSONS])


class _Links(Struct, frozen=True):
    """What edges say of decisions: what replaced them, why, which revisits led to something, and
    what became of options.
    """

    replaced: dict[str, str]
    resolved: set[str]
    reasons: dict[str, str]
    verdicts: dict[str, Verdict]


def _find_links(store: Store, scope: DecisionScope, listed: Iterable[Decision]) -> _Links:
    """What the edges of attempts and options say. Others are not looked at."""
    kinds = {
        each.id: each.kind
        for each in listed
        if each.status == "superseded" or each.kind in ("option", "revisit")
    }
    edges = store.decisions.edges_of(scope, kinds) if kinds else []
    verdicts = find_verdicts(edges, {each for each, kind in kinds.items() if kind == "option"})
    reasons = {option: each.newest.rationale for option, each in verdicts.items()}
    links = _Links({}, set(), reasons, verdicts)
    for edge in edges:
        if edge.kind == "supersedes" and edge.source in kinds:
            links.replaced[edge.source] = edge.target
            links.reasons[edge.source] = edge.rationale
        elif edge.kind != "rejected" and kinds.get(edge.source) == "revisit":
            links.resolved.add(edge.source)
    return links


def _describe_verdicts(
    store: Store, scope: DecisionScope, verdicts: dict[str, Verdict]
) -> dict[str, str]:
    """Of options that were chosen and rejected, both in words, by their ids."""
    sources = {name for each in verdicts.values() for name in each.name_sources()}
    titles = {name: store.decisions.find(scope, name).title for name in sources}
    words = {option: each.describe(titles) for option, each in verdicts.items()}
    return {option: said for option, said in words.items() if said}


def _find_titles(
    store: Store, scope: DecisionScope, lessons: Sequence[Decision], links: _Links
) -> dict[str, str]:
    """The titles of what superseded decisions, by the ids of these."""
    return {
        each.id: store.decisions.find(scope, links.replaced[each.id]).title
        for each in lessons
        if each.id in links.replaced
    }
