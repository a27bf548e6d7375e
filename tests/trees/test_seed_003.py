"""Seed 003, section by section: every rule and every default it prints."""

import re

import pytest
from msgspec.structs import replace

from loom import CannotFit, Loom, Media, Message, Text, ToolCall, ToolResult
from loom.context.policy import find_policy
from loom.conversation.agents import PERMISSIONS, Agent
from loom.conversation.tree import Preferences, Reference, TreeHead
from loom.engine.trees import preferred_policy
from loom.errors import ChoiceError
from tests.trees.making import buffer, dialogue, system, told, woven

LONG = [f"{n:03} " + "the shuttle passes over and under the warp " * 12 for n in range(40)]
STRATEGIES = ["truncate_middle", "rolling_window", "stop_at_limit"]
MARKER = "[... earlier messages truncated ...]"


# ── Overview
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_overview_a_path_through_a_tree_becomes_a_request(loom: Loom) -> None:
    tree, nodes = dialogue(loom, ["one", "two", "three"])
    tree.switch(nodes[1].id)
    tree.say("another three")
    assert told(woven(tree)) == [("user", "one"), ("assistant", "two"), ("user", "another three")]
    assert told(woven(tree, at=nodes[2].id)) == [
        ("user", "one"),
        ("assistant", "two"),
        ("user", "three"),
    ]


def test_overview_modes_differ_a_dialogue_is_messages_and_a_buffer_one_text(loom: Loom) -> None:
    talk, _ = dialogue(loom, ["one ", "two "])
    text, _ = buffer(loom, ["one ", "two "])
    assert len(woven(talk).conversation.messages) == 2
    assert woven(text).document() == "one two "


# ── System Context Combination
# ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("agent", "tree", "combined"),
    [
        ("The agent's.", "The tree's.", "The agent's.\n\nThe tree's."),
        ("The agent's.", "", "The agent's."),
        ("", "The tree's.", "The tree's."),
        ("", "", ""),
    ],
)
def test_system_context_combination_agent_first_then_tree(
    loom: Loom, agent: str, tree: str, combined: str
) -> None:
    loom.keep_agent(Agent(name="weaver", system_prompt=agent))
    made, _ = dialogue(loom, ["hello"], system_context=tree)
    assert system(woven(made, agent="weaver")) == combined


def test_system_context_combination_instructions_come_last(loom: Loom) -> None:
    loom.keep_agent(Agent(name="weaver", system_prompt="The agent's."))
    tree, (first, _) = dialogue(loom, ["hello", "hi"], system_context="The tree's.")
    verse, brief = (tree.say(text, after=first.id) for text in ("Answer in verse.", "Be brief."))
    tree.say(
        "and now?",
        after=first.id,
        sources=[Reference(verse.id, "instruction"), Reference(brief.id, "instruction")],
    )
    assert (
        system(woven(tree, agent="weaver"))
        == "The agent's.\n\nThe tree's.\n\nAnswer in verse.\n\nBe brief."
    )


# ── Provider Handling
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_provider_handling_system_goes_where_the_provider_has_it(loom: Loom) -> None:
    tree, _ = dialogue(loom, ["hello"], system_context="Be brief.")
    context = woven(tree)
    assert context.openai()["messages"][0] == {"role": "system", "content": "Be brief."}
    assert context.responses()["instructions"] == "Be brief."
    assert "Be brief." in str(context.anthropic()["system"])
    assert [message["role"] for message in context.anthropic()["messages"]] == ["user"]


# ── Multi-Source Edge Handling, Edge Source Roles
# ──────────────────────────────────────────────────────────────────────────


def test_multi_source_edge_handling_most_edges_have_one_primary_source(loom: Loom) -> None:
    tree, nodes = dialogue(loom, ["one", "two"])
    assert all(tree.marks(node).sources == () for node in nodes)
    assert Reference(nodes[0].id).role == "primary"


def test_edge_source_roles_instruction_then_context_then_primary(loom: Loom) -> None:
    """The order in which they are given does not matter: instructions go to the system, references
    before what is asked.
    """
    tree, (first, _, asked) = dialogue(
        loom, ["look at this", "I see", "what is it?"], system_context="The tree's."
    )
    image = tree.say(
        Message("user", (Media("image", "url", "https://example.org/loom.png"),)), after=first.id
    )
    rule = tree.say("Answer in one word.", after=first.id)
    tree.switch(asked.id)
    answer = tree.say(
        "A loom.",
        role="assistant",
        sources=[Reference(image.id, "context"), Reference(rule.id, "instruction")],
    )
    context = woven(tree)
    assert system(context) == "The tree's.\n\nAnswer in one word."
    assert [message.role for message in context.conversation.messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    question = context.conversation.messages[2]
    assert question.parts == (
        Media("image", "url", "https://example.org/loom.png"),
        Text("what is it?"),
    ), "before the primary"
    assert tree.marks(answer).sources == (
        Reference(image.id, "context"),
        Reference(rule.id, "instruction"),
    )


def test_edge_source_roles_sources_of_the_next_generation_are_kept_with_the_answer(
    loom: Loom,
) -> None:
    tree, (first, _, asked) = dialogue(loom, ["one", "two", "three"])
    rule = tree.say("In verse.", after=first.id)
    tree.switch(asked.id)
    session = tree.session()
    sources = [Reference(rule.id, "instruction")]
    import asyncio

    context = asyncio.run(session.prepare(model="gpt-4o", sources=sources))
    assert system(context) == "In verse."
    reply = {
        "id": "x",
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "roses"}}],
    }
    [node] = session.absorb(reply)
    assert tree.marks(node).sources == tuple(sources)
    assert system(asyncio.run(session.prepare(model="gpt-4o"))) == "In verse."


def test_edge_source_roles_a_source_of_another_tree_comes_in(loom: Loom) -> None:
    other, [shown] = dialogue(loom, ["from elsewhere"])
    tree, (_, asked) = dialogue(loom, ["one", "two"])
    tree.say("three", after=asked.id, sources=[Reference(shown.id, "context", other.id)])
    assert told(woven(tree)) == [
        ("user", "one\n\nfrom elsewhere"),
        ("assistant", "two"),
        ("user", "three"),
    ]
    reported = woven(tree, policy="default").report
    assert any(item.place == "messages[1].context" for item in reported.items)


def test_edge_source_roles_what_is_on_the_path_already_is_not_said_twice(loom: Loom) -> None:
    tree, (first, _, _) = dialogue(loom, ["one", "two", "three"])
    tree.say("four", role="assistant", sources=[Reference(first.id, "context")])
    assert [text for _, text in told(woven(tree))] == ["one", "two", "three", "four"]


def test_edge_source_roles_an_excluded_source_stays_out_and_the_report_says_so(loom: Loom) -> None:
    tree, (first, _, _) = dialogue(loom, ["one", "two", "three"])
    rule = tree.say("In verse.", after=first.id)
    tree.say("four", role="assistant", after=tree.node(rule.id).id, sources=[])
    tree.switch(first.id)
    tree.say("five", role="assistant", sources=[Reference(rule.id, "instruction")])
    tree.exclude(rule.id)
    context = woven(tree)
    assert system(context) == ""
    assert any("instruction" in note and rule.short_id in note for note in context.report.notes)


# ── Exclusion Filtering
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_exclusion_filtering_excluded_nodes_stay_out_and_what_follows_stays_in(loom: Loom) -> None:
    tree, nodes = dialogue(loom, ["one", "two", "three", "four"])
    tree.exclude(nodes[1].id)
    context = woven(tree)
    assert told(context) == [("user", "one\n\nthree"), ("assistant", "four")]
    assert [
        (item.place, item.rule) for item in context.report.items if item.action == "hidden"
    ] == [("messages[1]", "excluded")]
    tree.exclude(nodes[1].id, on=False)
    assert len(told(woven(tree))) == 4


def test_exclusion_filtering_pruned_nodes_take_all_below_them_along(loom: Loom) -> None:
    tree, nodes = dialogue(loom, ["one", "two", "three", "four"])
    assert tree.prune(nodes[2].id) == 2
    context = woven(tree)
    assert [text for _, text in told(context)] == ["one", "two"]
    assert any(nodes[2].short_id in note for note in context.report.notes)
    assert tree.restore(nodes[2].id) == 2
    assert len(told(woven(tree))) == 4


def test_exclusion_filtering_what_was_pruned_by_itself_stays_pruned(loom: Loom) -> None:
    tree, nodes = dialogue(loom, ["one", "two", "three", "four"])
    tree.prune(nodes[3].id)
    tree.prune(nodes[1].id)
    for below in (nodes[2], nodes[3]):
        with pytest.raises(ChoiceError, match=f"was pruned with {nodes[1].short_id}"):
            tree.restore(below.id)
    tree.restore(nodes[1].id)
    assert [text for _, text in told(woven(tree))] == ["one", "two", "three"]


def test_exclusion_filtering_annotations_stay_out_unless_they_are_included(loom: Loom) -> None:
    tree, nodes = dialogue(loom, ["one", "two", "three"])
    remark = tree.annotate(nodes[1].id, "this is wrong")
    assert [text for _, text in told(woven(tree))] == ["one", "two", "three"]
    assert [text for _, text in told(woven(tree, include=[remark.id]))] == [
        "one",
        "two",
        "this is wrong\n\nthree",
    ]
    tree.exclude(remark.id, on=False)
    assert [text for _, text in told(woven(tree))] == ["one", "two", "this is wrong\n\nthree"]
    tree.exclude(remark.id)
    assert [text for _, text in told(woven(tree))] == ["one", "two", "three"]


def test_exclusion_filtering_an_annotation_on_the_path_stays_out_too(loom: Loom) -> None:
    tree, nodes = dialogue(loom, ["one", "two"])
    remark = tree.annotate(nodes[1].id, "a remark")
    tree.say("about the remark", after=remark.id)
    assert [text for _, text in told(woven(tree))] == ["one", "two", "about the remark"]
    assert [text for _, text in told(woven(tree, include=[remark.id]))] == [
        "one",
        "two",
        "a remark\n\nabout the remark",
    ]


def test_exclusion_filtering_who_changed_what_and_when_is_kept(loom: Loom) -> None:
    loom.keep_agent(Agent(name="ann", kind="human"))
    tree, nodes = dialogue(loom, ["one"])
    tree.bookmark(nodes[0].id, "start", agent="ann")
    tree.bookmark(nodes[0].id, "the start")
    tree.bookmark(nodes[0].id, on=False)
    changes = [
        (mark.author, mark.data.flag, mark.data.on, mark.data.label)
        for mark in tree.history(nodes[0].id)
    ]
    assert changes == [
        ("ann", "bookmarked", True, "start"),
        ("", "bookmarked", True, "the start"),
        ("", "bookmarked", False, ""),
    ]
    times = [mark.created for mark in tree.history(nodes[0].id)]
    assert times == sorted(set(times))


def test_exclusion_filtering_an_edited_annotation_stays_an_annotation(loom: Loom) -> None:
    tree, nodes = dialogue(loom, ["one", "two"])
    remark = tree.annotate(nodes[1].id, "a remark")
    other = tree.edit(remark.id, "another remark")
    assert tree.marks(other).edge_mark.edge == "annotation"
    assert tree.marks(other).edge_mark.edited_from == remark.id
    assert tree.position() == nodes[1]


# ── Dialogue Mode Assembly
# ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_dialogue_mode_assembly_roles_come_from_the_author(loom: Loom) -> None:
    loom.keep_agent(Agent(name="ann", kind="human"))
    loom.keep_agent(Agent(name="bot", kind="model"))
    tree = loom.new_tree()
    for agent, text in (("ann", "hello"), ("bot", "hi"), ("", "who are you?")):
        last = tree.say(text, agent=agent, after=tree.position().id if tree.position() else None)
        tree.switch(last.id, agent="")
    assert told(woven(tree, agent="")) == [
        ("user", "hello"),
        ("assistant", "hi"),
        ("user", "who are you?"),
    ]


def test_dialogue_mode_assembly_merges_consecutive_nodes_of_one_author(loom: Loom) -> None:
    tree = loom.new_tree()
    for role, text in (
        ("user", "a"),
        ("user", "b"),
        ("assistant", "c"),
        ("assistant", "d"),
        ("user", "e"),
    ):
        tree.say(text, role=role)
    assert told(woven(tree)) == [("user", "a\n\nb"), ("assistant", "c\n\nd"), ("user", "e")]


def test_dialogue_mode_assembly_keeps_media(loom: Loom) -> None:
    tree = loom.new_tree()
    picture = Media("image", "data", "iVBORw0KGgo=", "image/png")
    tree.say(Message("user", (Text("what is"), picture)))
    tree.say(Message("user", (Text("this?"),)))
    [message] = woven(tree).conversation.messages
    assert message.parts == (Text("what is"), picture, Text("this?"))


def test_dialogue_mode_assembly_leaves_calls_whole(loom: Loom) -> None:
    tree = loom.new_tree()
    tree.say("look")
    tree.say(Message("assistant", (Text("I look."),)))
    tree.say(Message("assistant", (ToolCall("c1", "read", "{}"),)))
    tree.say(Message("tool", (ToolResult("c1", (Text("a loom"),)),)))
    tree.say(Message("assistant", (Text("a loom."),)))
    context = woven(tree)
    assert [message.role for message in context.conversation.messages] == [
        "user",
        "assistant",
        "assistant",
        "tool",
        "assistant",
    ]


# ── Buffer Mode Assembly, Assembly Steps
# ───────────────────────────────────────────────────────────────────────────────────


def test_buffer_mode_assembly_has_no_roles_and_no_system_by_default(loom: Loom) -> None:
    tree, _ = buffer(loom, ["Once ", "upon a time"], system_context="Write well.")
    context = woven(tree)
    assert context.document() == "Once upon a time"
    assert context.conversation.system == ()
    assert TreeHead().buffer_mode_system_context is False


def test_buffer_mode_assembly_includes_system_where_the_tree_says_so(loom: Loom) -> None:
    tree, _ = buffer(loom, ["Once."], system_context="Write well.", buffer_mode_system_context=True)
    assert woven(tree).document() == "Write well.\n\nOnce."
    assert system(woven(tree)) == "Write well."


def test_assembly_steps_the_latest_edit_stands_and_what_follows_stays(loom: Loom) -> None:
    tree, (first, second) = buffer(loom, ["Once ", "upon a time"])
    one = tree.edit(first.id, "Twice ")
    assert woven(tree).document() == "Twice upon a time"
    two = tree.edit(one.id, "Thrice ")
    assert woven(tree).document() == "Thrice upon a time"
    assert [node.id for node in tree.session().path] == [first.id, second.id], (
        "nothing downstream was copied"
    )
    assert tree.marks(two).edge_mark.edited_from == one.id


def test_assembly_steps_an_explicit_choice_outranks_the_latest_edit(loom: Loom) -> None:
    tree, (first, _) = buffer(loom, ["Once ", "upon a time"])
    one = tree.edit(first.id, "Twice ")
    tree.edit(first.id, "Thrice ")
    tree.switch(one.id)
    assert woven(tree).document() == "Twice upon a time", (
        "a version is chosen, and who chose it stays at the end"
    )
    loom.keep_agent(Agent(name="ann", kind="human"))
    tree.session("ann")
    assert woven(tree, agent="ann").document() == "Thrice upon a time", (
        "who chose nothing reads the latest edit"
    )
    tree.choose(first.id)
    assert woven(tree).document() == "Once upon a time", "the node itself can be chosen again"


def test_assembly_steps_a_pruned_version_gives_way_to_the_one_before(loom: Loom) -> None:
    tree, (first, _) = buffer(loom, ["Once ", "upon a time"])
    tree.edit(first.id, "Twice ")
    last = tree.edit(first.id, "Thrice ")
    tree.prune(last.id)
    assert woven(tree).document() == "Twice upon a time"


def test_assembly_steps_excluded_nodes_are_not_concatenated(loom: Loom) -> None:
    tree, nodes = buffer(loom, ["a", "b", "c"])
    tree.exclude(nodes[1].id)
    assert woven(tree).document() == "ac"


def test_assembly_steps_the_working_buffer_ends_the_text_and_is_committed_later(loom: Loom) -> None:
    tree, _ = buffer(loom, ["Once "])
    session = tree.session()
    session.draft("upon a")
    assert woven(tree).document() == "Once upon a"
    assert len(tree.session().path) == 1
    session.absorb(
        {
            "id": "g1",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": " time"}}],
        }
    )
    assert [node.message.text for node in tree.session().path if node.message] == [
        "Once ",
        "upon a",
        " time",
    ]
    assert session.draft_text == ""


@pytest.mark.parametrize("moves", ["edit", "switch", "say"])
def test_assembly_steps_the_working_buffer_is_committed_by_what_leaves_it(
    loom: Loom, moves: str
) -> None:
    tree, (first,) = buffer(loom, ["Once "])
    tree.session().draft("upon")
    {
        "edit": lambda: tree.edit(first.id, "Twice "),
        "switch": lambda: tree.switch(first.id),
        "say": lambda: tree.say(" a time"),
    }[moves]()
    assert tree.session().draft_text == ""
    assert "upon" in [
        node.message.text
        for node in loom.store.trees.children(tree.stored.row.key, first)
        if node.message
    ]


def test_assembly_steps_white_space_and_media_are_kept_as_text_can(loom: Loom) -> None:
    tree = loom.new_tree(head=TreeHead(mode="buffer"))
    for part in (
        Text("a\n"),
        Text("  "),
        Media("image", "url", "https://example.org/x.png"),
        Text("\nb "),
    ):
        tree.say(Message("user", (part,)))
    assert woven(tree).document() == "a\n  [image content]\nb "


# ── Truncation Strategies
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def cut(loom: Loom, mode: str, strategy: str, texts: list[str], **head: object):
    make = dialogue if mode == "dialogue" else buffer
    return make(loom, texts, preferences=Preferences(strategy), **head)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["dialogue", "buffer"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_truncation_strategies_what_fits_is_unchanged(loom: Loom, mode: str, strategy: str) -> None:
    tree, _ = cut(loom, mode, strategy, LONG[:6])
    context = woven(tree, window=8000)
    assert not context.report.truncated
    assert context.report.dropped == 0
    if mode == "dialogue":
        assert [text for _, text in told(context)] == LONG[:6]
    else:
        assert context.document() == "".join(LONG[:6])


@pytest.mark.parametrize("mode", ["dialogue", "buffer"])
@pytest.mark.parametrize("strategy", ["truncate_middle", "rolling_window"])
def test_truncation_strategies_what_is_too_long_is_cut_with_a_marker(
    loom: Loom, mode: str, strategy: str
) -> None:
    tree, _ = cut(loom, mode, strategy, LONG)
    context = woven(tree, window=3000)
    text = context.document()
    assert context.report.input_tokens <= 3000 - 1024
    assert MARKER in text
    assert context.report.truncated
    assert context.report.dropped > 0
    assert LONG[-1] in text
    # The first goal stays in a dialogue whatever the strategy; a text has none.
    assert (LONG[0] in text) == (strategy == "truncate_middle" or mode == "dialogue")
    assert (LONG[1] in text) == (strategy == "truncate_middle")
    [gone] = [item for item in context.report.items if item.action == "dropped"]
    recalled = context.recall(gone.handles[0])
    assert recalled.count("\n") == context.report.dropped
    assert all(text in recalled or text in context.document() for text in LONG)


@pytest.mark.parametrize("mode", ["dialogue", "buffer"])
def test_truncation_strategies_stop_at_limit_refuses_to_cut(loom: Loom, mode: str) -> None:
    tree, _ = cut(loom, mode, "stop_at_limit", LONG)
    with pytest.raises(
        CannotFit, match="stop_at_limit refuses to cut; exclude messages or choose a model"
    ):
        woven(tree, window=3000)


@pytest.mark.parametrize("mode", ["dialogue", "buffer"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_truncation_strategies_system_alone_too_long_is_an_error(
    loom: Loom, mode: str, strategy: str
) -> None:
    head = {"system_context": "Mind the selvedge. " * 1000, "buffer_mode_system_context": True}
    tree, _ = cut(loom, mode, strategy, LONG[:2], **head)
    with pytest.raises(
        CannotFit, match=r"system text 6,00\d, tools 0, .*leave nothing of 1,976 usable"
    ):
        woven(tree, window=3000)


def test_truncate_middle_is_the_default_and_keeps_the_beginning_and_the_four_newest(
    loom: Loom,
) -> None:
    tree, _ = dialogue(loom, LONG)
    context = woven(tree, window=3000)
    texts = [text for _, text in told(context)]
    kept = [text for text in texts if text in LONG]
    assert kept[-4:] == LONG[-4:]
    assert kept[:-4] == LONG[: len(kept) - 4]
    assert context.report.policy == "tree"


def test_truncate_middle_keeps_as_many_recent_nodes_as_preferred(loom: Loom) -> None:
    tree, _ = dialogue(loom, LONG, preferences=Preferences(minimum_recent_nodes=9))
    texts = [text for _, text in told(woven(tree, window=3000)) if text in LONG]
    assert texts[-9:] == LONG[-9:]


def test_the_last_nodes_are_preserved_where_they_fit_and_a_large_first_goal_is_shrunk_for_them(
    loom: Loom,
) -> None:
    texts = ["goal " * 1200, *(f"{n} " + "a node of some length " * 60 for n in range(1, 12))]
    tree, _ = dialogue(loom, texts)
    context = woven(tree, window=3000)
    sent = [text for _, text in told(context)]
    assert sent[-4:] == texts[-4:]
    [goal] = [item for item in context.report.items if item.rule == "first goal"]
    assert goal.action == "shrunk"
    assert context.recall(goal.handles[0]) == texts[0]
    # Of nodes that are larger the newest stays, then those before it.
    larger = ["goal " * 1200, *(f"{n} " + "a node of some length " * 130 for n in range(1, 12))]
    tree, _ = dialogue(loom, larger)
    assert [text for _, text in told(woven(tree, window=3000))][-2:] == larger[-2:]


def test_rolling_window_keeps_only_the_newest_and_the_goal_that_the_laws_ask_for(
    loom: Loom,
) -> None:
    tree, _ = dialogue(loom, LONG, preferences=Preferences("rolling_window"))
    texts = [text for _, text in told(woven(tree, window=3000))]
    newest = [text for text in texts if text in LONG and text != LONG[0]]
    assert newest == LONG[-len(newest) :]
    assert texts[0] == LONG[0]


@pytest.mark.parametrize("mode", ["dialogue", "buffer"])
def test_stop_at_limit_refuses_what_only_the_tokenizer_finds_too_long(
    loom: Loom, mode: str
) -> None:
    # characters by four: a quarter of its tokens
    texts = [f"{n} " + "重试预算用完后停止" * 50 for n in range(12)]
    tree, _ = cut(loom, mode, "stop_at_limit", texts)
    with pytest.raises(
        CannotFit,
        match=r"takes [\d,]+ tokens of [\d,]+, and the strategy stop_at_limit refuses to cut",
    ):
        woven(tree, window=3000)
    report = woven(tree, window=30_000).report
    assert (report.truncated, report.dropped) == (False, 0)


def test_stop_at_limit_passes_once_enough_is_excluded(loom: Loom) -> None:
    tree, nodes = dialogue(loom, LONG, preferences=Preferences("stop_at_limit"))
    for node in nodes[1:36]:
        tree.exclude(node.id)
    assert LONG[-1] in woven(tree, window=3000).document()


# ── Guarantees
# ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["dialogue", "buffer"])
def test_guarantees_system_is_never_truncated(loom: Loom, mode: str) -> None:
    rules = "Mind the selvedge. " * 100
    tree, _ = cut(
        loom, mode, "truncate_middle", LONG, system_context=rules, buffer_mode_system_context=True
    )
    assert system(woven(tree, window=3000)) == rules


@pytest.mark.parametrize("mode", ["dialogue", "buffer"])
@pytest.mark.parametrize("strategy", ["truncate_middle", "rolling_window"])
def test_guarantees_at_least_one_message_is_always_included(
    loom: Loom, mode: str, strategy: str
) -> None:
    tree, _ = cut(loom, mode, strategy, ["a very long node " * 4000])
    context = woven(tree, window=3000)
    assert context.conversation.messages
    assert "a very long node" in context.document()
    assert context.report.input_tokens <= 3000 - 1024


@pytest.mark.parametrize("mode", ["dialogue", "buffer"])
def test_guarantees_truncation_is_told_by_flags(loom: Loom, mode: str) -> None:
    tree, _ = cut(loom, mode, "truncate_middle", LONG)
    report = woven(tree, window=3000).report
    [gone] = [item for item in report.items if item.action == "dropped"]
    start, stop = map(int, re.findall(r"\d+", gone.place))
    assert (report.truncated, report.dropped) == (True, stop - start)
    whole, _ = cut(loom, mode, "truncate_middle", LONG)
    assert woven(whole, window=60_000).report.truncated is False


def test_guarantees_an_empty_path_is_said_and_never_sent(loom: Loom) -> None:
    tree, nodes = dialogue(loom, ["one"])
    tree.prune(nodes[0].id)
    with pytest.raises(CannotFit, match="nothing to send"):
        woven(tree)
    empty, only = dialogue(loom, ["one"])
    empty.exclude(only[0].id)
    with pytest.raises(CannotFit, match="nothing to send"):
        woven(empty)


# ── Token Estimation
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_token_estimation_four_characters_a_token_and_1024_reserved() -> None:
    from loom.budget.counting import Counter
    from loom.budget.profiles import profile

    counter = Counter(profile("tree"))
    assert [counter.count_text("x" * n) for n in (0, 1, 4, 5, 8)] == [0, 1, 1, 2, 2]
    assert find_policy("tree").reserve == 1024


def test_token_estimation_the_buffer_is_reserved_for_the_answer(loom: Loom) -> None:
    tree, _ = dialogue(loom, ["one"])
    assert woven(tree).report.reserved_output == 1024
    tree.change(preferences=Preferences(token_buffer=4000))
    assert woven(tree).report.reserved_output == 4000


def test_token_estimation_usage_is_recorded_after_generation(loom: Loom) -> None:
    tree, _ = dialogue(loom, ["one"])
    session = tree.session()
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    answer = {
        "id": "r1",
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "two"}}],
        "usage": usage,
    }
    [node] = session.absorb(answer)
    assert '"prompt_tokens":7' in (session.response(node.id) or "")
    assert session.row.usage.prompt == 7


# ── User Preferences
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_user_preferences_defaults_are_as_printed(loom: Loom) -> None:
    tree, _ = dialogue(loom, ["one"])
    held = preferred_policy(tree.preferences)
    assert (held.strategy, held.minimum_recent_nodes, held.reserve) == ("truncate_middle", 4, 1024)
    assert held == find_policy("tree")


def test_user_preferences_are_the_applications_overridden_by_the_tree(loom: Loom) -> None:
    tree, _ = dialogue(loom, ["one"])
    loom.prefer(Preferences("rolling_window", 6, 2000))
    assert tree.preferences == Preferences("rolling_window", 6, 2000)
    tree.change(preferences=Preferences(truncation_strategy="stop_at_limit"))
    assert tree.preferences == Preferences("stop_at_limit", 6, 2000)
    other, _ = dialogue(loom, ["one"])
    assert other.preferences.truncation_strategy == "rolling_window"


def test_user_preferences_that_make_no_sense_are_refused() -> None:
    import msgspec

    for given in (
        {"minimum_recent_nodes": 0},
        {"token_buffer": -1},
        {"truncation_strategy": "none"},
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(given, Preferences)
    assert replace(Preferences(), minimum_recent_nodes=1).minimum_recent_nodes == 1


# ── Loom-Aware Extensions
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def aware(loom: Loom, *permissions: str) -> None:
    loom.keep_agent(
        Agent(name="bot", permissions=("loom_aware", *permissions), system_prompt="The agent's.")
    )  # type: ignore[arg-type]


def test_loom_aware_extensions_are_for_loom_aware_agents_only(loom: Loom) -> None:
    tree, _ = dialogue(loom, ["one", "two"])
    loom.keep_agent(Agent(name="plain"))
    assert told(woven(tree, agent="plain")) == [("user", "one"), ("assistant", "two")]
    assert Agent(name="a", kind="human").loom_aware
    assert not Agent(name="a", kind="model").loom_aware


def test_loom_aware_extensions_per_node_metadata_inline(loom: Loom) -> None:
    tree, (one, two, three) = dialogue(loom, ["one", "two", "three"])
    tree.annotate(two.id, "hm")
    tree.bookmark(two.id)
    tree.edit(three.id, "another three")
    aware(loom)
    texts = [text for _, text in told(woven(tree, agent="bot"))]
    assert texts[0].startswith(f"[{one.short_id}] human · ")
    assert texts[0].endswith("\n1 continuation\n---\none")
    assert texts[1].split("\n")[1:] == ["2 continuations · 1 annotation · bookmarked", "---", "two"]
    assert texts[2].split("\n")[1:] == ["---", "another three"], (
        "counts are left out when they are zero"
    )


def test_loom_aware_extensions_loom_context_at_the_end(loom: Loom) -> None:
    tree, nodes = dialogue(loom, ["one", "two"])
    aware(loom, "loom_write")
    role, text = told(woven(tree, agent="bot"))[-1]
    assert role == "user"
    lines = text.split("\n")
    assert lines[0] == "=== Loom Context ==="
    assert lines[1:3] == ['Tree "a talk" (dialogue)', "2 nodes · 1 branch · depth: 2"]
    assert lines[3] == f"Position: [{nodes[1].short_id}]"
    assert lines[4] == "Permissions: loom_aware, loom_write"
    assert lines[5].startswith(f"Others: human at [{nodes[1].short_id}] · ")
    assert lines[-1] == "==="


def test_loom_aware_extensions_operational_memory_block(loom: Loom) -> None:
    tree, nodes = dialogue(loom, ["one", "two"])
    aware(loom)
    assert "Operational Memory" not in told(woven(tree, agent="bot"))[-1][1], (
        "nothing to remember yet"
    )
    loom.act(
        tree.id,
        f'→ pin {nodes[0].short_id}\n→ stash "later" "a thought"\n→ stash "now" "another"',
        agent="bot",
    )
    loom.act(tree.id, '→ recall "now"', agent="bot")
    text = told(woven(tree, agent="bot"))[-1][1]
    block = text[: text.index("=== Loom Context ===")]
    assert block.startswith(
        "=== Operational Memory ===\nPinned:\n  ["
        + nodes[0].short_id
        + '] one\nRecalled:\n  "now" another\n'
    )
    assert "Recent actions:\n" in block
    assert f"  → pin {nodes[0].short_id} · " in block
    assert 'Stashed (not in context): "later"' in block


def test_loom_aware_extensions_addendum_ends_the_system_prompt(loom: Loom) -> None:
    from loom.engine.aware import addendum

    tree, _ = dialogue(loom, ["one"], system_context="The tree's.")
    aware(loom)
    assert system(woven(tree, agent="bot")) == f"The agent's.\n\nThe tree's.\n\n{addendum()}"


def test_loom_aware_extensions_do_not_move_the_prefix(loom: Loom) -> None:
    """Ages and counts change with every call; what a provider has cached must not."""
    tree, nodes = dialogue(loom, ["one", "two", "three"])
    aware(loom, "loom_write")
    first = woven(tree, agent="bot")
    tree.annotate(nodes[0].id, "hm")
    tree.bookmark(nodes[1].id, "gold")
    loom.act(tree.id, f"I answer.\n→ view {nodes[0].short_id}", agent="bot")
    tree.say("four", agent="bot", role="user")
    second = woven(tree, agent="bot")
    assert second.report.epoch_reason == "continued"
    before = first.conversation.messages[:-1]
    assert second.conversation.messages[: len(before)] == before
    assert second.conversation.system == first.conversation.system


# ── looking changes nothing
# ────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_agent_that_only_looks_leaves_nothing_behind(loom: Loom) -> None:
    tree, nodes = dialogue(loom, ["one", "two"])
    aware(loom)
    for _ in range(2):
        assert told(woven(tree, agent="bot", preview=True))[-1][1].startswith("=== Loom Context")
        tree.path(agent="bot")
        assert tree.position("bot") == nodes[1]
    assert len(loom.store.trees.sessions_on(tree.stored.row.key)) == 1
    with pytest.raises(ChoiceError, match="there is no agent 'ghost'"):
        woven(tree, agent="ghost", preview=True)


def test_versions_of_a_root_are_no_branches(loom: Loom) -> None:
    from loom.conversation.outline import sizes

    tree, (first, _) = buffer(loom, ["Once ", "upon a time"])
    tree.edit(tree.edit(first.id, "Twice ").id, "Thrice ")
    counted = sizes(tree.twigs())
    assert (counted.branches, counted.versions) == (1, 2)
    assert loom.store.trees.counts(tree.stored.row.key) == (4, 1)


def test_a_node_cannot_be_linked_to_itself_however_its_tree_is_named(loom: Loom) -> None:
    tree, (node,) = dialogue(loom, ["one"])
    for name in (node.short_id, f"{tree.id}/{node.short_id}", f"{tree.id[:5]}/{node.short_id}"):
        with pytest.raises(ChoiceError, match="cannot be linked to itself"):
            tree.link(node.id, name)


# ── editing and merging
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_editing_a_result_keeps_its_call(loom: Loom) -> None:
    tree = loom.new_tree()
    tree.say("look")
    tree.say(Message("assistant", (ToolCall("c1", "read", "{}"),)))
    result = tree.say(Message("tool", (ToolResult("c1", (Text("old"),)),)))
    tree.edit(result.id, "EDITED")
    messages = woven(tree).conversation.messages
    assert messages[-1].results[0].parts == (Text("EDITED"),)
    assert messages[-1].results[0].call_id == "c1"


def test_editing_speaks_in_the_role_of_who_edits(loom: Loom) -> None:
    loom.keep_agent(Agent(name="bot"))
    tree, (first, second) = dialogue(loom, ["one", "two"])
    assert tree.edit(first.id, "another one", agent="bot").role == "assistant"
    assert tree.edit(second.id, "another two").role == "assistant", (
        "a person without a name edits what was said as it was said"
    )
    with pytest.raises(ChoiceError, match="the text is blank"):
        tree.edit(first.id, " ")


def test_merging_tells_the_version_that_stands(loom: Loom) -> None:
    tree, (first, second) = buffer(loom, ["one ", "old words "])
    version = tree.edit(second.id, "NEW words ")
    tree.say("other ", after=first.id)
    made = tree.merge(second.id)
    assert made.message is not None
    assert "NEW words" in made.message.text
    assert "old words" not in made.message.text
    [handle] = re.findall(r"handle (~\w+)", made.message.text)
    assert "NEW words" in tree.session().recall(handle)
    assert version.short_id in made.message.text
    with pytest.raises(ChoiceError, match="at least 120 tokens, found 5"):
        tree.merge(second.id, tokens=5)


def test_leaving_a_branch_of_which_nothing_can_be_told_moves_nobody(loom: Loom) -> None:
    tree, (first, second, third) = dialogue(loom, ["one", "two", "three"])
    other = tree.say("another", after=first.id)
    tree.switch(third.id)
    tree.exclude(second.id)
    tree.exclude(third.id)
    with pytest.raises(ChoiceError, match="nothing to summarize"):
        tree.switch(other.id, leave_digest=True)
    assert tree.position() == third


def test_a_pruned_version_is_drawn_as_it_is_read(loom: Loom) -> None:
    tree, (_, second) = buffer(loom, ["one ", "two "])
    one = tree.edit(second.id, "v1 ")
    two = tree.edit(one.id, "v2 ")
    tree.prune(one.id)
    assert woven(tree).document() == "one v2 "
    assert {twig.short_id for twig in tree.twigs() if twig.pruned} == {one.short_id}
    assert tree.marks(two).edge_mark.first == second.id


def test_a_version_of_a_version_is_found_in_one_step(loom: Loom) -> None:
    tree, (first,) = buffer(loom, ["v0 "])
    last = first
    for number in range(1, 60):
        last = tree.edit(last.id, f"v{number} ")
    assert woven(tree).document() == "v59 "
    assert tree.marks(last).edge_mark.first == first.id


def test_a_committed_text_is_committed_once(loom: Loom, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, _ = buffer(loom, ["Dear. "])
    session = tree.session()
    session.draft("Half ")
    monkeypatch.setattr(loom.store.states, "put", None)  # nothing but the one transaction writes
    session.commit()
    assert session.draft_text == ""


@pytest.mark.parametrize(
    "how", ["excluded", "pruned above", "excluded elsewhere", "pruned elsewhere"]
)
@pytest.mark.parametrize("role", ["context", "instruction"])
def test_edge_source_roles_nothing_that_is_kept_back_comes_in(
    loom: Loom, how: str, role: str
) -> None:
    tree, (root, above) = dialogue(loom, ["root", "above"])
    secret = tree.say("SECRET")
    other, (there,) = dialogue(loom, ["SECRET"])
    if how == "excluded":
        tree.exclude(secret.id)
    if how == "pruned above":
        tree.prune(above.id)
    if how == "excluded elsewhere":
        other.exclude(there.id)
    if how == "pruned elsewhere":
        other.prune(there.id)
    source = (
        Reference(there.id, role, other.id) if "elsewhere" in how else Reference(secret.id, role)
    )  # type: ignore[arg-type]
    tree.say("main", after=root.id, role="assistant", sources=[source])
    context = woven(tree)
    assert "SECRET" not in system(context) + str(told(context))
    assert any("was left out" in note for note in context.report.notes)


def test_loom_aware_extensions_what_is_pinned_stands_whole_where_the_window_has_room(
    loom: Loom,
) -> None:
    loom.keep_agent(Agent(name="aware", permissions=PERMISSIONS))
    tree = loom.new_tree("a talk")
    notes = tree.say(" ".join(f"fact{n} is number {n * 7}," for n in range(450)))
    tree.switch(tree.say("Which number has fact 449?", after="").id)
    loom.act(tree.id, f"→ pin {notes.short_id}", agent="aware")
    context = woven(tree, agent="aware", window=8000)
    [memory] = [item for item in context.report.items if item.zone == "operational_memory"]
    assert (memory.action, memory.before > 3000) == ("kept", True)
    assert "fact449 is number 3143" in told(context)[-1][1]
    assert context.report.input_tokens <= context.report.usable
    for number in range(12):  # as the conversation grows, memory gives back what it was lent
        tree.say(f"And then {number}? " + "It is a long story. " * 60)
        context = woven(tree, agent="aware", window=8000)
        assert context.report.input_tokens <= context.report.usable
    [memory] = [item for item in context.report.items if item.zone == "operational_memory"]
    assert memory.action == "shrunk"
    assert told(context)[-1][1].count("===") >= 4
