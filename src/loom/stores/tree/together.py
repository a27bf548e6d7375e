"""Who speaks together on a tree.

Rules: of each agent one session takes part in its tree's conversation, and so does the tree's own.
What one of them says is where all continue that stood at the same node. Who switches goes alone,
but the tree's own session takes along those that stood with it. A session that was forked does not
take part: it goes its own way.
"""

from collections.abc import Sequence

from loom.stores.sql.database import Writer

JOINED = "joined"  # the state of a session that takes part
_NOWHERE = -1  # where a session stands that has said nothing; no node has this number

# Of a session `s`: the tree's own, or one that has joined.
TAKES_PART = """((s.agent = '' AND EXISTS (SELECT 1 FROM trees t
    WHERE t.key = s.tree AND t.id = s.id))
    OR EXISTS (SELECT 1 FROM states j WHERE j.session = s.key AND j.kind = 'joined'))"""
_COMPANIONS = f"""SELECT s.key FROM sessions s
    WHERE s.tree = $1 AND s.key <> $2 AND s.status = 'active'
    AND coalesce(s.cursor, {_NOWHERE}) IN {{each_int:3}} AND {TAKES_PART}
    AND EXISTS (SELECT 1 FROM sessions s WHERE s.key = $2 AND {TAKES_PART})"""


def join(writer: Writer, session: int, now: int) -> None:
    """Let a session take part in the conversation of its tree."""
    writer.all(
        """INSERT INTO states (session, kind, name, data, updated) VALUES ($1, $2, '', 'true', $3)
            ON CONFLICT (session, kind, name) DO NOTHING""",
        session,
        JOINED,
        now,
    )


def bring_along(
    writer: Writer, tree: int, session: int, stood: Sequence[int | None], to: int | None
) -> None:
    """Move those that take part, and stand at one of these nodes, to where this session went;
    unless it goes its own way.
    """
    places = [_NOWHERE if place is None else place for place in stood]
    companions = [(key, to) for (key,) in writer.all(_COMPANIONS, tree, session, str(places))]
    if companions:
        writer.run_many("UPDATE sessions SET cursor = $2 WHERE key = $1", companions)
