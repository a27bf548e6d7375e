"""A decision graph as a Mermaid flowchart.

Rules of this file:
- A title is never a part of the drawing: every sign that Mermaid could read is written as its
  number. Names of nodes are made here.
- A drawing is bounded, for renderers refuse large ones. What is left out is counted in a comment.
"""

from loom.decisions.values import Decision, DecisionEdge, DecisionGraph, DecisionKind

MAX_DRAWN_EDGES = 500  # that renderers draw unless they are told otherwise
MAX_CHARS = 48_000  # of a drawing; renderers refuse 50,000
MAX_LABEL_CHARS = 60
_PLAIN_SIGNS = frozenset(" .,-_/:'!?+=@*")
_SHAPES: dict[DecisionKind, tuple[str, str]] = {
    "goal": ("([", "])"),
    "decision": ("[", "]"),
    "option": ("(", ")"),
    "action": ("[[", "]]"),
    "outcome": ("[/", "/]"),
    "observation": (">", "]"),
    "revisit": ("{{", "}}"),
}
_STYLES = (
    "  classDef superseded stroke-dasharray: 4 3,color:#777",
    "  classDef abandoned stroke-dasharray: 1 3,color:#777",
)
_ARROWS = {"supersedes": "-.->", "rejected": "--x"}


def draw_mermaid(graph: DecisionGraph) -> str:
    """The flowchart of a graph."""
    lines = ["flowchart TD"]
    names: dict[str, str] = {}
    room = MAX_CHARS - sum(map(len, _STYLES)) - 200
    for decision in graph.decisions:
        line = _draw_node(f"d{len(names) + 1}", decision)
        room -= len(line) + 1
        if room < 0:
            break
        names[decision.id] = f"d{len(names) + 1}"
        lines.append(line)
    drawable = [edge for edge in graph.edges if edge.source in names and edge.target in names]
    drawn = 0
    for edge in drawable[:MAX_DRAWN_EDGES]:
        line = _draw_edge(names, edge)
        room -= len(line) + 1
        if room < 0:
            break
        drawn += 1
        lines.append(line)
    lines += _STYLES
    missing = graph.left_out + len(graph.decisions) - len(names)
    if missing:
        lines.append(f"  %% {missing} decisions are left out")
    if drawn < len(drawable):
        lines.append(f"  %% {len(drawable) - drawn} edges are left out")
    return "\n".join(lines) + "\n"


def _draw_node(name: str, decision: Decision) -> str:
    before, after = _SHAPES[decision.kind]
    label = decision.title or "purged"
    if len(label) > MAX_LABEL_CHARS:
        label = label[: MAX_LABEL_CHARS - 1] + "…"
    sure = ""
    if decision.confidence is not None:
        sure = f" #40;{decision.confidence}#37;#41;"
    style = "" if decision.status == "active" else f":::{decision.status}"
    return f'  {name}{before}"{decision.kind}: {escape_label(label)}{sure}"{after}{style}'


def _draw_edge(names: dict[str, str], edge: DecisionEdge) -> str:
    arrow = _ARROWS.get(edge.kind, "-->")
    return f"  {names[edge.source]} {arrow}|{edge.kind}| {names[edge.target]}"


def escape_label(text: str) -> str:
    """A text in a label: each sign that is not plain as its number."""
    return "".join(
        each if each in _PLAIN_SIGNS or _is_letter(each) else f"#{ord(each)};" for each in text
    )


def _is_letter(character: str) -> bool:
    if character.isascii():
        return character.isalnum()
    return character.isprintable()
