"""The tables, as numbered steps that only go forward. A step that was released is never changed; a
change is a new step. SQLite keeps the text of a step in the file: not even its blanks change, and a
`\\` at the end folds a line that is too long.

`seq` and `key` are names inside one store; what leaves it are the ids. A node's row says what was
said (`body`, never changed; null once purged) and what can be computed from its parent's row and
is kept so that no path has to be walked to know it: `depth`, `jump` (see path.py), `goal` and
`request` (the first and the newest user message at or above it), `total` (tokens up to it).
"""

from loom.stores.sql.migrate import Migration

MIGRATIONS = (
    Migration(
        1,
        "trees of nodes, sessions on them, views, handles and what is kept beside a node",
        (
            """CREATE TABLE trees (
                key {serial}, tenant TEXT NOT NULL, project TEXT NOT NULL, \
id TEXT {binary} NOT NULL,
                title TEXT NOT NULL DEFAULT '', data TEXT NOT NULL DEFAULT '{}', \
created BIGINT NOT NULL,
                UNIQUE (tenant, project, id))""",
            # Times are milliseconds since 1970, UTC. `known` is the match key, `local` the short
            # name in the tree.
            """CREATE TABLE nodes (
                seq {node_key}, tree BIGINT NOT NULL, id TEXT {binary} NOT NULL, \
local TEXT {binary} NOT NULL,
                parent BIGINT, jump BIGINT, depth BIGINT NOT NULL, goal BIGINT, request BIGINT, \
role TEXT NOT NULL,
                author TEXT NOT NULL, body TEXT, generation TEXT NOT NULL, known TEXT NOT NULL, \
tokens BIGINT NOT NULL,
                total BIGINT NOT NULL, session BIGINT NOT NULL, \
created BIGINT NOT NULL{node_tail})""",
            "CREATE UNIQUE INDEX nodes_id ON nodes (tree, id)",
            "CREATE UNIQUE INDEX nodes_local ON nodes (tree, local)",
            "CREATE INDEX nodes_known ON nodes (known)",
            """CREATE TABLE sessions (
                key {serial}, tenant TEXT NOT NULL, project TEXT NOT NULL, \
id TEXT {binary} NOT NULL, tree BIGINT NOT NULL,
                agent TEXT NOT NULL, title TEXT NOT NULL, model TEXT NOT NULL, \
status TEXT NOT NULL, origin TEXT NOT NULL,
                cursor BIGINT, head TEXT NOT NULL, asides TEXT NOT NULL, \
prompt BIGINT NOT NULL DEFAULT 0,
                completion BIGINT NOT NULL DEFAULT 0, cached BIGINT NOT NULL DEFAULT 0, \
cost DOUBLE PRECISION NOT NULL DEFAULT 0,
                calibration TEXT NOT NULL DEFAULT '', created BIGINT NOT NULL, \
updated BIGINT NOT NULL,
                UNIQUE (tenant, project, id))""",
            "CREATE INDEX sessions_tree ON sessions (tree)",
            "CREATE INDEX sessions_updated ON sessions (tenant, project, updated)",
            """CREATE TABLE views (
                session BIGINT NOT NULL, epoch BIGINT NOT NULL, node BIGINT NOT NULL, \
seen BIGINT NOT NULL, hash TEXT NOT NULL,
                data TEXT NOT NULL, created BIGINT NOT NULL, PRIMARY KEY (session, epoch))""",
            """CREATE TABLE handles (
                tree BIGINT NOT NULL, handle TEXT NOT NULL, session BIGINT NOT NULL, \
kind TEXT NOT NULL, data TEXT,
                created BIGINT NOT NULL, PRIMARY KEY (tree, handle))""",
            """CREATE TABLE records (
                seq {serial}, tree BIGINT NOT NULL, node BIGINT NOT NULL, kind TEXT NOT NULL, \
name TEXT NOT NULL,
                session BIGINT NOT NULL, author TEXT NOT NULL, data TEXT, \
created BIGINT NOT NULL)""",
            "CREATE UNIQUE INDEX records_node ON records (tree, node, kind, name)",
            # For people who look with SQL: who said what, where, in order.
            """CREATE VIEW messages AS
                SELECT t.tenant, t.project, t.id AS tree, n.local, n.depth, p.local AS after, \
n.role, n.author, n.body
                FROM nodes n JOIN trees t ON t.key = n.tree \
LEFT JOIN nodes p ON p.tree = n.tree AND p.seq = n.parent""",
        ),
    ),
    Migration(
        2,
        "trees are looked at from any node, agents and preferences are kept, and so is "
        "what a session works with",
        (
            "CREATE INDEX nodes_parent ON nodes (tree, parent)",
            "CREATE INDEX records_kind ON records (tree, kind)",
            # What a project settles: agents, and how its trees are read.
            """CREATE TABLE settings (
                tenant TEXT NOT NULL, project TEXT NOT NULL, kind TEXT NOT NULL, \
name TEXT {binary} NOT NULL, data TEXT NOT NULL,
                author TEXT NOT NULL, updated BIGINT NOT NULL, \
PRIMARY KEY (tenant, project, kind, name))""",
            # What a session has at hand besides what was said: text not yet committed, versions
            # chosen, pins, stashes, actions.
            """CREATE TABLE states (
                session BIGINT NOT NULL, kind TEXT NOT NULL, name TEXT {binary} NOT NULL, \
data TEXT NOT NULL,
                updated BIGINT NOT NULL, PRIMARY KEY (session, kind, name))""",
        ),
    ),
    Migration(
        3,
        "a handle belongs to every session that has its marker, not only to the one "
        "that made it first",
        (
            """CREATE TABLE session_handles (
                tree BIGINT NOT NULL, handle TEXT {binary} NOT NULL, session BIGINT NOT NULL, \
kind TEXT NOT NULL, data TEXT,
                created BIGINT NOT NULL, PRIMARY KEY (tree, handle, session))""",
            """INSERT INTO session_handles (tree, handle, session, kind, data, created)
                SELECT tree, handle, session, kind, data, created FROM handles""",
            "DROP TABLE handles",
            "ALTER TABLE session_handles RENAME TO handles",
        ),
    ),
    Migration(
        4,
        "what this store wrote to folders that are not its own is known, and so is a "
        "view that was damaged",
        (
            # Only who writes files puts rows here: no import does, so that a purge deletes nothing
            # that somebody else names.
            """CREATE TABLE snapshots (
                session BIGINT NOT NULL, folder TEXT {binary} NOT NULL, \
generation TEXT {binary} NOT NULL,
                PRIMARY KEY (session, folder, generation))""",
            # A digest of `data`; none in views that were written before there was one.
            "ALTER TABLE views ADD COLUMN digest TEXT NOT NULL DEFAULT ''",
        ),
    ),
    Migration(
        5,
        "system messages are nodes at their place, and the newest of each kind are "
        "found without reading a path",
        (
            # Of a system message, a digest of its kind; empty in nodes of older stores, of which
            # none is looked for.
            "ALTER TABLE nodes ADD COLUMN reminder TEXT {binary} NOT NULL DEFAULT ''",
            "CREATE INDEX nodes_reminder ON nodes (tree, reminder, depth) WHERE reminder <> ''",
        ),
    ),
    Migration(
        6,
        "messages are found by their words: an index that can be built again from the nodes",
        (
            "{by_tree}",
            # Nodes of a tree up to `upto` are in the index. `pending`: there are newer ones.
            """CREATE TABLE search_trees (
                tree BIGINT NOT NULL PRIMARY KEY, upto BIGINT NOT NULL, pending BIGINT NOT NULL)""",
            "CREATE INDEX search_pending ON search_trees (tree) WHERE pending = 1",
            "INSERT INTO search_trees (tree, upto, pending) SELECT key, 0, 1 FROM trees",
            # A segment is `live`, or `building` while its terms are written, or `dead` while they
            # are removed. A purge counts up its `revision`.
            """CREATE TABLE search_segments (
                key {serial}, tenant TEXT NOT NULL, project TEXT NOT NULL, state TEXT NOT NULL,
                documents BIGINT NOT NULL, revision BIGINT NOT NULL, version BIGINT NOT NULL,
                data {bytes} NOT NULL, created BIGINT NOT NULL)""",
            "CREATE INDEX search_segments_project ON search_segments (tenant, project, state)",
            # The line of each node that was indexed: the node at its beginning.
            """CREATE TABLE search_documents (
                tree BIGINT NOT NULL, seq BIGINT NOT NULL, line BIGINT NOT NULL,
                PRIMARY KEY (tree, seq)){clustered}""",
            """CREATE TABLE search_lines (
                tree BIGINT NOT NULL, line BIGINT NOT NULL, segment BIGINT NOT NULL,
                PRIMARY KEY (tree, line, segment)){clustered}""",
            "CREATE INDEX search_lines_segment ON search_lines (segment)",
            """CREATE TABLE search_terms (
                segment BIGINT NOT NULL, term TEXT {binary} NOT NULL, data {bytes} NOT NULL,
                PRIMARY KEY (segment, term)){clustered}""",
            # Vectors of messages, by who made them; and the segments of which all are made.
            """CREATE TABLE search_embedders (
                key {serial}, name TEXT {binary} NOT NULL UNIQUE)""",
            """CREATE TABLE search_vectors (
                embedder BIGINT NOT NULL, tree BIGINT NOT NULL, seq BIGINT NOT NULL,
                data {bytes} NOT NULL, PRIMARY KEY (embedder, tree, seq)){clustered}""",
            """CREATE TABLE search_embedded (
                segment BIGINT NOT NULL, embedder BIGINT NOT NULL,
                PRIMARY KEY (segment, embedder)){clustered}""",
        ),
    ),
    Migration(
        7,
        "documents of projects, their chunks, and an index of these",
        (
            # What a project of a tenant has: how many chunks, with how many terms; by which rules
            # those were made; and how often that changed.
            """CREATE TABLE bases (
                key {serial}, tenant TEXT {binary} NOT NULL, project TEXT {binary} NOT NULL,
                chunks BIGINT NOT NULL, terms BIGINT NOT NULL, version BIGINT NOT NULL,
                revision BIGINT NOT NULL, UNIQUE (tenant, project))""",
            # `path` is what a document is known by, `source` what it is cited by, `root` the folder
            # that it was added with.
            """CREATE TABLE documents (
                key {serial}, base BIGINT NOT NULL, path TEXT {binary} NOT NULL,
                source TEXT NOT NULL, root TEXT NOT NULL, kind TEXT NOT NULL, title TEXT NOT NULL,
                digest TEXT NOT NULL, size BIGINT NOT NULL, chunks BIGINT NOT NULL,
                notes TEXT NOT NULL, created BIGINT NOT NULL, updated BIGINT NOT NULL,
                UNIQUE (base, path))""",
            """CREATE TABLE chunks (
                key {serial}, base BIGINT NOT NULL, digest TEXT {binary} NOT NULL,
                headings TEXT NOT NULL, text TEXT NOT NULL, tokens BIGINT NOT NULL,
                length BIGINT NOT NULL, created BIGINT NOT NULL, UNIQUE (base, digest))""",
            "CREATE INDEX chunks_base ON chunks (base, key)",
            """CREATE TABLE document_chunks (
                document BIGINT NOT NULL, place BIGINT NOT NULL, chunk BIGINT NOT NULL,
                first BIGINT NOT NULL, last BIGINT NOT NULL, PRIMARY KEY (document, place))""",
            "CREATE INDEX document_chunks_chunk ON document_chunks (chunk)",
            """CREATE TABLE chunk_terms (
                base BIGINT NOT NULL, term TEXT {binary} NOT NULL, chunk BIGINT NOT NULL,
                count BIGINT NOT NULL, PRIMARY KEY (base, term, chunk)){clustered}""",
            """CREATE TABLE chunk_vectors (
                chunk BIGINT NOT NULL, embedder TEXT {binary} NOT NULL, data {bytes} NOT NULL,
                PRIMARY KEY (chunk, embedder))""",
        ),
    ),
    Migration(
        8,
        "tasks are found by their ids and by the labels of their sessions",
        (
            "CREATE INDEX nodes_generation ON nodes (generation, tree) WHERE generation <> ''",
            "CREATE INDEX states_label ON states (name) WHERE kind = 'label'",
        ),
    ),
    Migration(
        9,
        "notes and facts of projects, agents and sessions",
        (
            # What a project of a tenant remembers: by which rules its words were split, and how
            # often it changed.
            """CREATE TABLE memories (
                key {serial}, tenant TEXT {binary} NOT NULL, project TEXT {binary} NOT NULL,
                version BIGINT NOT NULL, revision BIGINT NOT NULL, UNIQUE (tenant, project))""",
            # `session` and `agent` say who sees a note: those of these names, or all if it is
            # empty. `data` is null once purged.
            """CREATE TABLE notes (
                key {serial}, memory BIGINT NOT NULL, id TEXT {binary} NOT NULL,
                session TEXT {binary} NOT NULL, agent TEXT {binary} NOT NULL, kind TEXT NOT NULL,
                said_by TEXT NOT NULL, supersedes TEXT {binary} NOT NULL, always BIGINT NOT NULL,
                forgotten BIGINT NOT NULL, valid_from BIGINT NOT NULL, valid_until BIGINT NOT NULL,
                uses BIGINT NOT NULL, used BIGINT NOT NULL, data TEXT, created BIGINT NOT NULL,
                updated BIGINT NOT NULL, UNIQUE (memory, id))""",
            "CREATE INDEX notes_seen ON notes (memory, session, agent, updated)",
            "CREATE INDEX notes_superseding ON notes (memory, supersedes)",
            """CREATE TABLE note_terms (
                memory BIGINT NOT NULL, term TEXT {binary} NOT NULL, note BIGINT NOT NULL,
                PRIMARY KEY (memory, term, note)){clustered}""",
            "CREATE INDEX note_terms_note ON note_terms (note)",
        ),
    ),
    Migration(
        10,
        "events between agents, and direct messages until they are acknowledged",
        (
            # The events of a project are numbered in their order; `last` is the newest number.
            """CREATE TABLE buses (
                key {serial}, tenant TEXT {binary} NOT NULL, project TEXT {binary} NOT NULL,
                last BIGINT NOT NULL, UNIQUE (tenant, project))""",
            # `state`: 0 a direct message that is open, 1 another event, 2 acknowledged, 3 expired.
            """CREATE TABLE events (
                bus BIGINT NOT NULL, seq BIGINT NOT NULL, id TEXT {binary} NOT NULL,
                action TEXT {binary} NOT NULL, source TEXT {binary} NOT NULL,
                node TEXT {binary} NOT NULL, target TEXT {binary} NOT NULL,
                target_node TEXT {binary} NOT NULL, parent TEXT {binary} NOT NULL,
                session TEXT {binary} NOT NULL, priority DOUBLE PRECISION NOT NULL,
                created BIGINT NOT NULL, expires BIGINT, state BIGINT NOT NULL,
                data TEXT NOT NULL, PRIMARY KEY (bus, seq)){clustered}""",
            "CREATE INDEX events_id ON events (bus, id)",
            "CREATE INDEX events_target ON events (bus, target, seq) WHERE target <> ''",
            "CREATE INDEX events_target_node ON events (bus, target_node, seq) \
WHERE target_node <> ''",
            "CREATE INDEX events_parent ON events (bus, parent, seq) WHERE parent <> ''",
            "CREATE INDEX events_node ON events (bus, node, seq) WHERE node <> ''",
            "CREATE INDEX events_expires ON events (bus, expires) \
WHERE state = 0 AND expires IS NOT NULL",
            "CREATE INDEX events_settled ON events (bus, seq) WHERE state <> 0",
            "CREATE INDEX events_open ON events (bus, seq) WHERE state = 0",
            # The ids of events that came, by which one that comes again is known.
            """CREATE TABLE event_ids (
                bus BIGINT NOT NULL, id TEXT {binary} NOT NULL, seq BIGINT NOT NULL,
                PRIMARY KEY (bus, id)){clustered}""",
            "CREATE INDEX event_ids_seq ON event_ids (bus, seq)",
        ),
    ),
    Migration(
        11,
        "the most urgent events for an agent are found without looking at the others",
        (
            "CREATE INDEX events_urgent ON events (bus, target, priority, created, seq) \
WHERE state IN (0, 1) AND target <> ''",
            "CREATE INDEX events_urgent_node ON events (bus, target_node, priority, created, seq) \
WHERE state IN (0, 1) AND target_node <> ''",
        ),
    ),
    Migration(
        12,
        "decisions of projects, and the edges between them",
        (
            # What was decided in a folder of a project: by which rules its words were split, and
            # how often it changed. `name` is a digest of the folder, or empty if there is none.
            """CREATE TABLE decision_graphs (
                key {serial}, tenant TEXT {binary} NOT NULL, project TEXT {binary} NOT NULL,
                name TEXT {binary} NOT NULL, folder TEXT NOT NULL, version BIGINT NOT NULL,
                revision BIGINT NOT NULL, UNIQUE (tenant, project, name))""",
            # `shelf` is the list that a decision is in, `placed` since when; `title` is a digest
            # of its title. `data` is null once purged.
            """CREATE TABLE decisions (
                key {serial}, graph BIGINT NOT NULL, id TEXT {binary} NOT NULL,
                session TEXT {binary} NOT NULL, agent TEXT NOT NULL, kind TEXT NOT NULL,
                status TEXT NOT NULL, confidence BIGINT, parent TEXT {binary} NOT NULL,
                generation BIGINT NOT NULL, shelf TEXT {binary} NOT NULL, placed BIGINT NOT NULL,
                title TEXT {binary} NOT NULL, data TEXT, created BIGINT NOT NULL,
                updated BIGINT NOT NULL, UNIQUE (graph, id))""",
            "CREATE INDEX decisions_shelf ON decisions (graph, shelf, placed, key)",
            "CREATE INDEX decisions_session ON decisions (graph, session, created, key)",
            "CREATE INDEX decisions_created ON decisions (graph, created, key)",
            "CREATE INDEX decisions_goal ON decisions (graph, title) WHERE shelf = 'goal'",
            """CREATE TABLE decision_edges (
                key {serial}, graph BIGINT NOT NULL, source BIGINT NOT NULL, target BIGINT NOT NULL,
                kind TEXT NOT NULL, weight DOUBLE PRECISION NOT NULL,
                session TEXT {binary} NOT NULL, agent TEXT NOT NULL, data TEXT,
                created BIGINT NOT NULL, UNIQUE (source, target, kind))""",
            "CREATE INDEX decision_edges_target ON decision_edges (target)",
            "CREATE INDEX decision_edges_graph ON decision_edges (graph, key)",
            """CREATE TABLE decision_terms (
                graph BIGINT NOT NULL, term TEXT {binary} NOT NULL, decision BIGINT NOT NULL,
                PRIMARY KEY (graph, term, decision)){clustered}""",
            "CREATE INDEX decision_terms_decision ON decision_terms (decision)",
        ),
    ),
)
