"""Agents and their permissions."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.conversation.agents import PERMISSIONS, REQUIRES, Agent, Permission
from loom.errors import ChoiceError


def decoded(text: str) -> Agent:
    return msgspec.json.decode(text, type=Agent)


def test_a_human_may_do_everything_and_a_model_nothing_by_default() -> None:
    human, model = Agent(name="ann", kind="human"), Agent(name="opus")
    assert human.granted_permissions == set(PERMISSIONS)
    assert human.loom_aware
    assert model.granted_permissions == frozenset()
    assert not model.loom_aware


def test_what_is_granted_outranks_the_kind() -> None:
    assert Agent(name="guest", kind="human", permissions=()).granted_permissions == frozenset()
    assert Agent(name="helper", permissions=("loom_aware", "doc_read")).granted_permissions == {
        "loom_aware",
        "doc_read",
    }
    assert Agent(name="helper", permissions=("loom_aware",)).loom_aware
    assert not Agent(name="reader", permissions=("doc_read",)).loom_aware


@pytest.mark.parametrize(
    ("permissions", "told"),
    [
        (("loom_write",), "loom_write requires loom_aware, which is missing"),
        (("loom_generate", "doc_read"), "loom_generate requires loom_aware, which is missing"),
        (("loom_aware", "doc_write"), "doc_write requires doc_read, which is missing"),
        (("doc_read", "loom_aware", "doc_read"), "doc_read is granted 2 times"),
    ],
)
def test_permissions_that_do_not_go_together_are_refused(
    permissions: tuple[Permission, ...], told: str
) -> None:
    with pytest.raises(ChoiceError, match=told):
        Agent(name="helper", permissions=permissions)
    with pytest.raises(ChoiceError, match=f"agent 'helper': {told}"):
        decoded(msgspec.json.encode({"name": "helper", "permissions": permissions}).decode())


@pytest.mark.parametrize("window", [0, -1])
def test_a_window_is_a_number_of_tokens(window: int) -> None:
    with pytest.raises(ChoiceError, match=f"agent 'a': window is {window}"):
        Agent(name="a", window=window)
    with pytest.raises(ChoiceError, match=f"agent 'a': window is {window}"):
        decoded(f'{{"name":"a","window":{window}}}')
    assert Agent(name="a", window=1).window == 1


def test_a_permission_that_does_not_exist_is_refused() -> None:
    with pytest.raises(
        ChoiceError, match=r"permissions\[0\]: expected one of .*loom_aware, .*found the text 'fly'"
    ):
        Agent(name="a", permissions=("fly",))  # type: ignore[arg-type]
    with pytest.raises(
        msgspec.ValidationError, match=r"Invalid enum value 'fly' - at `\$.permissions\[0\]`"
    ):
        decoded('{"name":"a","permissions":["fly"]}')


def test_an_agent_changed_into_a_wrong_one_is_refused_too() -> None:
    agent = Agent(name="a", permissions=("loom_aware", "loom_write"))
    with pytest.raises(ChoiceError, match="requires loom_aware"):
        msgspec.structs.replace(agent, permissions=("loom_write",))


def test_json_holds_only_what_is_not_the_default() -> None:
    assert msgspec.json.encode(Agent(name="a")) == b'{"name":"a"}'
    assert (
        msgspec.json.encode(Agent(name="a", kind="human", permissions=()))
        == b'{"name":"a","kind":"human","permissions":[]}'
    )


closed = st.permutations(PERMISSIONS).flatmap(
    lambda order: st.sets(st.sampled_from(PERMISSIONS)).map(
        lambda some: tuple(
            p for p in order if p in some | {REQUIRES[p] for p in some if p in REQUIRES}
        )
    )
)


@given(
    st.builds(
        Agent,
        name=st.text(),
        window=st.none() | st.integers(1, 2**40),
        permissions=st.none() | closed,
    )
)
def test_agents_come_back_from_json(agent: Agent) -> None:
    assert decoded(msgspec.json.encode(agent).decode()) == agent
    assert {
        REQUIRES[p] for p in agent.granted_permissions if p in REQUIRES
    } <= agent.granted_permissions
    assert hash(agent) == hash(decoded(msgspec.json.encode(agent).decode()))
