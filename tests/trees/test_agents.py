"""A scripted agent works on a tree: every `→` command, right and wrong, and what it is told of
them.
"""

import re

import pytest

from loom import Loom
from loom.conversation.agents import PERMISSIONS, Agent
from loom.conversation.commands import LONGEST_BATCH, SPECS
from loom.conversation.tree import TreeHead
from loom.engine import commands
from loom.engine.answers import AnswerOutcome
from loom.engine.trees import LoomTree
from loom.errors import ChoiceError
from loom.stores.health.doctor import examine
from loom.stores.tree.path import Node
from tests.trees.making import dialogue, told, woven

TEXTS = [
    "How do I weave a selvedge?",
    "Turn the weft at the edge.",
    "And if it puckers?",
    "Beat more gently.",
]


@pytest.fixture
def tree(loom: Loom) -> tuple[LoomTree, list[Node]]:
    loom.keep_agent(Agent(name="bot", permissions=PERMISSIONS))
    return dialogue(loom, TEXTS)


def results(acted: AnswerOutcome) -> list[str]:
    return [result.text for result in acted.results]


def one(loom: Loom, tree: LoomTree, line: str, agent: str = "bot") -> str:
    [text] = results(loom.act(tree.id, line, agent=agent))
    return text


# ── a whole session
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_agent_uses_every_command_right_and_wrong(
    loom: Loom, tree: tuple[LoomTree, list[Node]]
) -> None:
    made, (a, b, c, d) = tree
    other, [there] = dialogue(loom, ["another talk"])
    turns = [
        f"""I first look around.
→ view {b.short_id}
→ tree
→ tree {b.short_id} depth:1
→ list branches
→ list siblings
→ search "weft"
→ help
→ help edit
→ memory""",
        f"""→ think The question is about
the edge, not about the weft. ←
→ pin {a.short_id}
→ pin result:1
→ stash "edge" content-of:{b.short_id}
→ stash "so far" summary-of:{a.short_id}-{d.short_id}
→ stash "idea" "ask about the beat"
→ recall "idea"
→ pin stash:edge
→ memory stashed
→ drop pin:{a.short_id}
→ drop stash:idea
→ drop stash:idea""",
        f"""→ respond "Use a temple."
→ respond to:{b.short_id} "How tight is the warp?"
→ annotate {a.short_id} "the real question"
→ link {a.short_id} {b.short_id} "answered by"
→ link {a.short_id} {other.id}/{there.short_id}
→ bookmark {b.short_id} "the answer"
→ edit {c.short_id} "And if it frays?"
→ list bookmarks
→ list links
→ list annotations
→ switch {d.short_id} digest:yes""",
        f"""→ prune {c.short_id}
→ restore {c.short_id}
→ unbookmark {b.short_id}
→ write "notes" "Beat gently.\\n"
→ read "notes"
→ list documents
→ list trees
→ continue n:2
→ memory trace""",
        f"""→ view nope
→ view {other.id}/{there.short_id}
→ link {a.short_id} zzzzzz/{there.short_id}
→ frobnicate
→ view
→ list everything
→ tree nope
→ switch nope
→ search ""
→ pin result:99
→ stash "label"
→ recall "nothing"
→ drop pin:nothing
→ memory all
→ help frobnicate""",
        f"""→ annotate nope "x"
→ edit {b.short_id} "Turn the weft at the edge."
→ bookmark nope
→ unbookmark
→ prune nope
→ restore nope
→ continue n:11
→ read "missing"
→ write "notes"
→ think without end
→ respond "never ends""",
    ]
    used: dict[str, set[bool]] = {name: set() for name in SPECS}
    transcript = ""
    for turn in turns:
        woven(made, agent="bot")
        acted = loom.act(made.id, turn, agent="bot")
        transcript += f"{acted}\n\n"
        for result in acted.results:
            name = re.match(r"→ (\w+)", result.command)
            if name and name[1] in used:
                used[name[1]].add(result.failed)
    used["think"].add(False)
    assert [name for name, ways in used.items() if False not in ways] == ["continue"], (
        "all but a model's work was done"
    )
    assert [name for name, ways in used.items() if True not in ways] == [], (
        "and each was refused once"
    )
    codes = set(re.findall(r"✗ ([A-Z_]+):", transcript))
    assert codes == {"NOT_FOUND", "CROSS_TREE", "INVALID_SYNTAX", "LIMIT_EXCEEDED", "MODEL_ERROR"}
    assert list(examine(loom.store)) == []
    said = [node.message.text for node in made.session("bot").path if node.message]
    assert "I first look around." not in said, "the agent has gone to another branch since"
    assert not any("→ " in text for text in said), "commands are no messages"
    texts = [
        node.message.text
        for node in loom.store.trees.read_all(made.stored.row.key)[0]
        if node.message
    ]
    assert "I first look around." in texts
    for expected in (
        f"[{b.short_id}] model · ",
        f"annotated [{a.short_id}] with [",
        "a branch next to",
        "is a digest of the branch that you left",
        f"[{c.short_id}] is pruned with ",
        f"[{c.short_id}] is back with ",
        '"notes", 1 part',
        "hint: → list documents",
        "there is no model that could continue",
    ):
        assert expected in transcript, expected


# ── what each needs
# ──────────────────────────────────────────────────────────────────────────────────────────────────

LINES = {
    "view": "→ view {a}",
    "list": "→ list",
    "tree": "→ tree",
    "switch": "→ switch {a}",
    "search": '→ search "weft"',
    "pin": "→ pin {a}",
    "stash": '→ stash "x" "y"',
    "recall": '→ recall "x"',
    "drop": "→ drop stash:x",
    "memory": "→ memory",
    "help": "→ help",
    "respond": '→ respond "x"',
    "annotate": '→ annotate {a} "x"',
    "link": "→ link {a} {b}",
    "edit": '→ edit {a} "x"',
    "bookmark": "→ bookmark {a}",
    "unbookmark": "→ unbookmark {a}",
    "prune": "→ prune {b}",
    "restore": "→ restore {b}",
    "continue": "→ continue",
    "read": '→ read "x"',
    "write": '→ write "x" "y"',
}


@pytest.mark.parametrize("name", [name for name in SPECS if name != "think"])
def test_a_command_needs_its_permission(loom: Loom, name: str) -> None:
    tree, (a, b) = dialogue(loom, ["one", "two"])
    line, needed = LINES[name].format(a=a.short_id, b=b.short_id), SPECS[name].needs
    least = tuple(
        p
        for p in PERMISSIONS
        if p == "loom_aware" or p == needed or (p, needed) == ("doc_read", "doc_write")
    )
    without = tuple(
        p for p in PERMISSIONS if p != needed and not (needed == "doc_read" and p == "doc_write")
    )
    loom.keep_agent(Agent(name="may", permissions=least))
    assert "PERMISSION_DENIED" not in one(loom, tree, line, "may")
    if needed != "loom_aware":
        loom.keep_agent(Agent(name="may not", permissions=without))
        text = one(loom, tree, line, "may not")
        assert text.startswith(
            f"✗ PERMISSION_DENIED: {name} needs {needed}, which you do not have\n  hint: "
        )


def test_to_an_agent_that_does_not_know_the_loom_an_arrow_is_an_arrow(loom: Loom) -> None:
    tree, _ = dialogue(loom, ["one"])
    loom.keep_agent(Agent(name="plain", permissions=("doc_read",)))
    acted = loom.act(tree.id, "→ view abcd", agent="plain")
    assert acted.results == ()
    assert acted.node is not None
    assert acted.node.message is not None
    assert acted.node.message.text == "→ view abcd"


def test_an_agent_that_nobody_knows_is_refused(loom: Loom) -> None:
    tree, _ = dialogue(loom, ["one"])
    with pytest.raises(ChoiceError, match="there is no agent 'stranger'"):
        loom.act(tree.id, "hello", agent="stranger")


# ── results
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_results_are_shown_in_the_next_turn_and_fade_unless_pinned(
    loom: Loom, tree: tuple[LoomTree, list[Node]]
) -> None:
    made, (a, b, *_) = tree
    loom.act(made.id, f"→ view {a.short_id}\n→ view {b.short_id}", agent="bot")
    first = told(woven(made, agent="bot"))[-1][1]
    assert "Results (shown once; → pin result:N keeps one):\n  1. → view" in first
    assert TEXTS[0] in first
    assert TEXTS[1] in first
    loom.act(made.id, "→ pin result:2", agent="bot")
    second = told(woven(made, agent="bot"))[-1][1]
    assert TEXTS[0] not in second
    assert TEXTS[1] in second
    loom.act(made.id, "→ list", agent="bot")
    third = told(woven(made, agent="bot"))[-1][1]
    assert TEXTS[1] in third, "what is pinned stays"


def test_a_large_result_is_cut_to_1000_tokens_and_can_be_read_in_pages(
    loom: Loom, tree: tuple[LoomTree, list[Node]]
) -> None:
    made, _ = tree
    lines = [f"line {n} of the pattern draft" for n in range(600)]
    node = made.say("\n".join(lines))
    text = one(loom, made, f"→ view {node.short_id}")
    from loom.budget.counting import gate_counter

    count = gate_counter(None).count_text
    assert count(text) <= commands.MAX_INLINE_TOKENS == 1000
    [handle] = re.findall(r"recall (~\w+)", text)
    found, start = list[str](), 1
    while start:
        page = one(loom, made, f"→ recall {handle} from:{start}")
        assert count(page) <= commands.MAX_INLINE_TOKENS
        found += [line for line in page.splitlines() if line.startswith("line ")]
        more = re.search(r"from:(\d+)\)$", page)
        start = int(more[1]) if more else 0
    assert found == lines


def test_a_batch_is_bounded(loom: Loom, tree: tuple[LoomTree, list[Node]]) -> None:
    made, _ = tree
    acted = loom.act(made.id, "→ list\n" * (LONGEST_BATCH + 5), agent="bot")
    assert len(acted.results) == LONGEST_BATCH + 1
    assert results(acted)[-1].startswith(
        "✗ LIMIT_EXCEEDED: an answer may contain 20 commands; 5 more were not run"
    )


def test_pins_and_stashes_are_bounded(loom: Loom, tree: tuple[LoomTree, list[Node]]) -> None:
    made, _ = tree
    nodes = [made.say(f"n{n}") for n in range(commands.PINS + 1)]
    for node in nodes[:-1]:
        assert one(loom, made, f"→ pin {node.short_id}").startswith("pinned")
    assert one(loom, made, f"→ pin {nodes[-1].short_id}").startswith(
        "✗ LIMIT_EXCEEDED: you have 20 pins"
    )
    for number in range(commands.MAX_STASHES):
        one(loom, made, f'→ stash "s{number}" "x"')
    assert one(loom, made, '→ stash "one more" "x"').startswith(
        "✗ LIMIT_EXCEEDED: you have 50 stashes"
    )
    assert one(loom, made, '→ stash "s0" "y"').startswith("stashed"), (
        "what is there may be written anew"
    )


# ── one writer at a time
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_writer_at_a_time_goes_on_with_a_branch(
    loom: Loom, tree: tuple[LoomTree, list[Node]]
) -> None:
    made, (*_, last) = tree
    woven(made, agent="bot")
    loom.keep_agent(Agent(name="other", permissions=PERMISSIONS))
    theirs = made.say("I was quicker.", agent="other")
    text = one(loom, made, '→ respond "Me too."')
    assert text == (
        f"✗ CONFLICT: somebody continued after {last.short_id} with {theirs.short_id} since "
        "you looked\n"
        f"  hint: → view {theirs.short_id}"
    )
    assert one(loom, made, '→ respond "Me too."').startswith("wrote ["), (
        "who has been told may go on"
    )


def test_an_answer_behind_what_somebody_went_on_with_is_not_written_and_told(
    loom: Loom, tree: tuple[LoomTree, list[Node]]
) -> None:
    made, (*_, last) = tree
    woven(made, agent="bot")
    theirs = made.say("I was quicker.")
    acted = loom.act(made.id, "An answer.\n→ list", agent="bot")
    assert acted.node is None
    assert [result.failed for result in acted.results] == [True, False], (
        "the commands are carried out all the same"
    )
    assert acted.results[0].text.startswith(
        f"✗ CONFLICT: your answer was not written: somebody continued after {last.short_id} "
        f"with {theirs.short_id} since you looked"
    )
    assert "your answer was not written" in told(woven(made, agent="bot"))[-1][1], (
        "and the agent is told"
    )
    assert loom.act(made.id, "An answer.", agent="bot").node is not None, (
        "who has been told may go on"
    )


def test_a_command_that_cannot_be_kept_keeps_no_other_from_being_done(
    loom: Loom, tree: tuple[LoomTree, list[Node]]
) -> None:
    made, (first, *_) = tree
    lines = [
        f'→ bookmark {first.short_id} "x"',
        "→ view \ud800aaa",
        '→ stash "a\0b" "x"',
        f'→ annotate {first.short_id} "n"',
    ]
    acted = loom.act(made.id, "\n".join(("My answer.", *lines)), agent="bot")
    assert [result.failed for result in acted.results] == [False, True, True, False]
    assert results(acted)[1].startswith("✗ INVALID_SYNTAX: ")
    for line in ('→ stash "" "x"', '→ write " " "x"'):
        assert "must have a name" in one(loom, made, line)


def test_nothing_is_said_behind_what_is_pruned(
    loom: Loom, tree: tuple[LoomTree, list[Node]]
) -> None:
    made, (_, second, third, _) = tree
    made.prune(second.id)
    assert f"was pruned with {second.short_id}, and nothing after it is read" in one(
        loom, made, '→ respond "lost?"'
    )
    assert "nothing after it is read" in one(loom, made, f"→ switch {third.short_id}")
    with pytest.raises(ChoiceError, match="restore"):
        made.say("lost?")


def test_a_long_line_can_be_read_to_its_end(loom: Loom, tree: tuple[LoomTree, list[Node]]) -> None:
    made, _ = tree
    node = made.say(" ".join(f"w{n}" for n in range(5000)) + "\nthe end")
    [handle] = re.findall(r"recall (~\w+)", one(loom, made, f"→ view {node.short_id}"))
    seen, start = "", 1
    while start:
        page = one(loom, made, f"→ recall {handle} from:{start}")
        more = re.search(r"\(lines .*from:(\d+)\)$", page)
        seen += "".join(page.splitlines()[:-1])
        start = int(more[1]) if more else 0
    assert "w2500 " in seen
    assert "w4999" in seen


def test_who_only_looks_as_an_agent_sees_nothing_of_others_memories(
    loom: Loom, tree: tuple[LoomTree, list[Node]]
) -> None:
    made, _ = tree
    loom.act(made.id, '→ stash "s" "PRIVATE"\n→ recall "s"', agent="")
    text = told(woven(made, agent="bot", preview=True))[-1][1]
    assert "PRIVATE" not in text
    assert "Others: human" in text


def test_what_is_excluded_leaves_an_agents_memory(
    loom: Loom, tree: tuple[LoomTree, list[Node]]
) -> None:
    made, (first, second, *_) = tree
    loom.act(made.id, f"→ pin {first.short_id}\n→ pin {second.short_id}", agent="bot")
    made.exclude(first.id)
    made.prune(second.id)
    made.switch(made.say("elsewhere", after="").id, agent="bot")
    text = told(woven(made, agent="bot"))[-1][1]
    assert TEXTS[0] not in text.split("Results")[0]
    assert f"[{first.short_id}] (excluded)" in text
    assert f"[{second.short_id}] (pruned)" in text


# ── documents
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_document_is_a_tree_in_buffer_mode(loom: Loom, tree: tuple[LoomTree, list[Node]]) -> None:
    made, _ = tree
    one(loom, made, '→ write "plan" "First warp.\\n"')
    one(loom, made, '→ write "plan" "Then weft.\\n"')
    text = one(loom, made, '→ read "plan"')
    first, second = re.findall(r"\[(\w+)\]", text)
    assert text.endswith("---\nFirst warp.\nThen weft.\n")
    assert one(loom, made, f'→ write "plan" "First measure.\\n" over:{first}').endswith(
        "over [" + first + '] of "plan"'
    )
    assert one(loom, made, '→ read "plan"').endswith("---\nFirst measure.\nThen weft.\n")
    [document] = [each for each in loom.trees() if each.tree.title == "plan"]
    assert document.tree.head.mode == "buffer"
    assert second in [node.short_id for node in loom.store.trees.read_all(document.tree.row.key)[0]]


def test_an_agent_writes_to_a_document_beside_what_a_person_is_writing(
    loom: Loom, tree: tuple[LoomTree, list[Node]]
) -> None:
    made, _ = tree
    letter = loom.new_tree("letter", head=TreeHead(mode="buffer"))
    letter.say("Begin. ")
    letter.session().draft("half a tho")
    one(loom, made, '→ write "letter" "Agent text. "')
    assert letter.session().draft_text == "half a tho", "what is not committed stays so"
    assert woven(letter).document() == "Begin. Agent text. half a tho"
    last = letter.session().cursor
    assert last is not None
    assert last.message is not None
    assert last.message.author == "bot", "and it is known who wrote"
