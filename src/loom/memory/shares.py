"""How sources share the room next to a task: L1 with direct messages, knowledge, events.

A share binds only where sources compete. What a source leaves of its share goes to L1 first.
"""

from msgspec import Struct

# The seed's 0.30, 0.25 and 0.20, made to add up to 1.
L1_SHARE, KNOWLEDGE_SHARE, EVENTS_SHARE = 0.30 / 0.75, 0.25 / 0.75, 0.20 / 0.75


class SourceTokens(Struct, frozen=True, kw_only=True):
    """Tokens of each source: what it needs, or what it may take."""

    l1: int = 0
    messages: int = 0  # direct messages, which come first in the share of L1
    knowledge: int = 0
    events: int = 0


def share_room(room: int, needs: SourceTokens, least: SourceTokens) -> SourceTokens:
    """What each source may take of the room. `least` is what a source gets whatever its share is,
    such as one direct message.
    """
    room = max(room, 0)
    wanted_l1 = needs.messages + needs.l1
    if wanted_l1 + needs.knowledge + needs.events <= room:
        return needs
    l1 = min(wanted_l1, int(room * L1_SHARE))
    knowledge = min(needs.knowledge, int(room * KNOWLEDGE_SHARE))
    events = min(needs.events, max(int(room * EVENTS_SHARE), least.events))
    left = max(room - l1 - knowledge - events, 0)
    more = min(wanted_l1 - l1, left)
    l1, left = l1 + more, left - more
    more = min(needs.knowledge - knowledge, left)
    knowledge, left = knowledge + more, left - more
    events += min(needs.events - events, left)
    messages = min(needs.messages, max(l1, least.messages))
    return SourceTokens(
        l1=max(l1 - messages, 0), messages=messages, knowledge=knowledge, events=events
    )
