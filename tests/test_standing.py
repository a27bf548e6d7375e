"""Pieces of the last epoch stand where their messages are now."""

from loom.context.history.places import Places, Spot
from loom.context.report import Action, Item, Piece
from loom.conversation.message import Message, Text
from loom.conversation.turns import Span
from loom.engine.prepare.standing import place_pieces
from loom.engine.reading.style import AssembledMessages


def piece(place: int, action: Action) -> Piece:
    said = Message("user", (Text(f"message {place}"),))
    item = Item(f"messages[{place}]", "history", action, "rule", 1, 1)
    return Piece(Span(place, place + 1), (said,), (item,))


def test_what_follows_a_message_that_repair_leaves_out_still_stands() -> None:
    """Nothing stood for the empty message 1, so the piece before it stands for it too."""
    spots = tuple(Spot(n, n + 1, ((f"node{n}", f"node{n}"),)) for n in range(4))
    said = tuple(Message("user", (Text(f"message {n}"),)) for n in range(4))
    assembled = AssembledMessages(said, Places(spots))
    standing = [(piece(0, "covered"), 0, 1), (piece(2, "kept"), 2, 3), (piece(3, "kept"), 3, 4)]
    placed = place_pieces(standing, assembled)
    assert [found.span for found in placed] == [Span(0, 2), Span(2, 3), Span(3, 4)]
    assert place_pieces(standing[1:], assembled) == ()
