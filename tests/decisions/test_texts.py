"""A decision graph as a drawing, as a write-up and as a number."""

import re

import pytest

from loom import ChoiceError
from loom.decisions.mermaid import MAX_CHARS, MAX_DRAWN_EDGES, draw_mermaid, escape_label
from loom.decisions.pulse import compute_health
from loom.decisions.values import (
    Decision,
    DecisionBody,
    DecisionEdge,
    DecisionGraph,
    NewDecision,
    NewEdge,
    decision_id,
    to_title,
)
from loom.decisions.write_up import MAX_CHARS as MAX_WRITTEN
from loom.decisions.write_up import write_up

HOSTILE = 'x"]; click d1 href "javascript:x" %%{init: {"a":1}}%% <b> `#35;` \\ end | [ ( { ) \u2028'


def decision(name: str, kind: str = "decision", title: str = "", **fields: object) -> Decision:
    return Decision(id=name, kind=kind, title=title or name, **fields)  # type: ignore[arg-type]


def edge(source: str, target: str, kind: str = "leads_to", why: str = "") -> DecisionEdge:
    return DecisionEdge(source=source, target=target, kind=kind, rationale=why)  # type: ignore[arg-type]


STORY = DecisionGraph(
    (
        decision("g", "goal", "Add authentication", confidence=85, description="to the API"),
        decision("j", title="Use JWT", status="superseded", commits=("4fd1c2e9a7b0c0ffee",)),
        decision("c", "option", "Use cookies"),
        decision("s", "option", "Use sessions", confidence=70),
        decision("a", "action", "Write the middleware"),
        decision("o", "outcome", "All tests pass"),
        decision("w", "observation", "Tokens cannot be revoked"),
        decision("x", "option", "Left alone", status="abandoned"),
    ),
    (
        edge("g", "j"),
        edge("g", "c", "rejected", "they need\nsticky sessions"),
        edge("g", "s", "chosen", "they can be revoked"),
        edge("j", "w"),
        edge("j", "s", "supersedes", "revocation"),
        edge("s", "a"),
        edge("a", "o"),
        edge("o", "g", "supports"),
    ),
)

WRITTEN = """\
# Decisions

## Goal: **Add authentication** (85%)

> to the API

**Decided**

- chosen: **Use sessions** (70%)
  - because: they can be revoked

**Not taken**

- superseded: **Use JWT**
  - superseded by Use sessions: revocation
  - commits: `4fd1c2e9a7b0`
- rejected: **Use cookies**
  - because: they need sticky sessions

**Observed**

- **Tokens cannot be revoked**

**Done**

- **Write the middleware**

**Came of it**

- **All tests pass**

## Other decisions

**Not taken**

- abandoned: **Left alone**
"""

DRAWN = """\
flowchart TD
  d1(["goal: Add authentication #40;85#37;#41;"])
  d2["decision: Use JWT"]:::superseded
  d3("option: Use cookies")
  d4("option: Use sessions #40;70#37;#41;")
  d5[["action: Write the middleware"]]
  d6[/"outcome: All tests pass"/]
  d7>"observation: Tokens cannot be revoked"]
  d8("option: Left alone"):::abandoned
  d1 -->|leads_to| d2
  d1 --x|rejected| d3
  d1 -->|chosen| d4
  d2 -->|leads_to| d7
  d2 -.->|supersedes| d4
  d4 -->|leads_to| d5
  d5 -->|leads_to| d6
  d6 -->|supports| d1
  classDef superseded stroke-dasharray: 4 3,color:#777
  classDef abandoned stroke-dasharray: 1 3,color:#777
"""


def test_a_write_up_tells_the_story() -> None:
    assert write_up(STORY) == WRITTEN
    assert "Nothing was decided." in write_up(DecisionGraph())


def test_a_drawing_shows_every_decision_and_edge() -> None:
    assert draw_mermaid(STORY) == DRAWN


def test_no_title_breaks_a_drawing() -> None:
    title = " ".join(HOSTILE.split())
    drawn = draw_mermaid(DecisionGraph((decision("a", title=title), decision("b"))))
    lines = drawn.splitlines()
    assert len(lines) == 5
    for line in lines[1:3]:
        assert re.fullmatch(r'  d\d\["decision: [^"`<>{}\[\]|;&\\]*(?:#\d+;[^"`<>]*)*"\]', line), (
            line
        )
    assert "%%" not in drawn
    assert escape_label("日本 ok") == "日本 ok"


def test_a_drawing_is_bounded() -> None:
    many = tuple(decision(f"n{number}", title='"' * 60) for number in range(2000))
    edges = tuple(edge("n0", f"n{number}") for number in range(1, 2000))
    drawn = draw_mermaid(DecisionGraph(many, edges, 7))
    assert len(drawn) <= MAX_CHARS + 200
    assert "decisions are left out" in drawn
    few = DecisionGraph(
        tuple(decision(f"n{number}") for number in range(600)),
        tuple(edge("n0", f"n{number}") for number in range(1, 600)),
    )
    assert draw_mermaid(few).count("-->") == MAX_DRAWN_EDGES
    assert "99 edges are left out" in draw_mermaid(few)


def test_no_words_pass_for_a_heading_of_a_write_up() -> None:
    story = DecisionGraph(
        (
            decision("a", title="# Fake <script>", description="## Goal: fake\n\n- **x**\n<img>"),
            decision("b", "goal", "[x](javascript:y)"),
        ),
        (edge("b", "a", why="# no\n## heading"),),
        3,
    )
    written = write_up(story)
    assert [line for line in written.splitlines() if line.startswith("#")] == [
        "# Decisions",
        r"## Goal: **\[x\](javascript:y)**",
    ]
    assert not re.search(r"(?<!\\)<", written)
    assert "3 more decisions are left out" in written
    many = DecisionGraph(tuple(decision(f"n{n}", "goal", "x" * 300) for n in range(500)))
    assert len(write_up(many)) <= MAX_WRITTEN


@pytest.mark.parametrize(
    ("troubles", "health"),
    [
        ((0, 0, 0), 100),
        ((1, 1, 1), 82),
        ((5, 6, 6), 2),
        ((9, 9, 9), 0),
        ((0, 0, 7), 80),
    ],
)
def test_health_falls_with_what_is_wrong(troubles: tuple[int, int, int], health: int) -> None:
    assert compute_health(*troubles) == health


# Values


def test_an_id_is_made_of_what_was_said_and_where() -> None:
    new = NewDecision(body=DecisionBody(title="Use JWT"), kind="decision")
    assert decision_id(new) == decision_id(
        NewDecision(body=DecisionBody(title="use jwt", commits=("4fd1c2e",)), kind="decision")
    )
    for other in ({"folder": "/x"}, {"session": "s"}, {"parent": "p"}, {"generation": 1}):
        made = NewDecision(body=new.body, kind="decision", **other)  # type: ignore[arg-type]
        assert decision_id(made) != decision_id(new)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"kind": "gaol"}, "Decision.kind: expected one of action, .*nearest is goal"),
        ({"status": "done"}, "Decision.status: expected one of abandoned, active, superseded"),
        ({"confidence": 101}, "Decision.confidence: expected a whole number.*at most 100"),
        ({"metadata": [1]}, "Decision.metadata: expected a mapping"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_right(fields: dict[str, object], named: str) -> None:
    with pytest.raises(ChoiceError, match=named):
        Decision(**{"id": "a", "kind": "goal", "title": "t", **fields})  # type: ignore[arg-type]


def test_bodies_and_edges_check_themselves() -> None:
    for wrong in ({"title": ""}, {"title": "a\nb"}, {"title": "t", "commits": ["zz"]}):
        with pytest.raises(ChoiceError):
            DecisionBody(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ChoiceError, match=r"NewEdge\.kind"):
        NewEdge(kind="leads")  # type: ignore[arg-type]


def test_titles_hide_nothing_and_turn_nothing_around() -> None:
    assert to_title("a\u202eevil\u200b\u2066 b\n c") == "aevil b c"
    assert to_title("क्\u200dष") == "क्\u200dष", "joiners belong to words"
