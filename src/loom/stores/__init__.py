"""Where conversations are kept: one seam over SQLite and PostgreSQL, and what is stored there."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom.stores.decisions.graph import DecisionCounts as DecisionCounts
    from loom.stores.decisions.graph import DecisionFilter as DecisionFilter
    from loom.stores.decisions.graph import DecisionMatches as DecisionMatches
    from loom.stores.decisions.graph import PulseCounts as PulseCounts
    from loom.stores.decisions.rows import DecisionScope as DecisionScope
    from loom.stores.decisions.rows import StoredDecision as StoredDecision
    from loom.stores.decisions.writing import Cascade as Cascade
    from loom.stores.decisions.writing import GraphWriter as GraphWriter
    from loom.stores.events import StoredEvents as StoredEvents
    from loom.stores.health.checkup import Problem as Problem
    from loom.stores.health.doctor import examine as examine
    from loom.stores.knowledge.documents import Documents as Documents
    from loom.stores.knowledge.rows import DocumentRow as DocumentRow
    from loom.stores.knowledge.rows import NewChunk as NewChunk
    from loom.stores.knowledge.rows import NewDocument as NewDocument
    from loom.stores.knowledge.rows import StoredChunk as StoredChunk
    from loom.stores.memory.notes import NoteFilter as NoteFilter
    from loom.stores.memory.notes import note_terms as note_terms
    from loom.stores.memory.rows import MAX_NOTE_CHARS as MAX_NOTE_CHARS
    from loom.stores.memory.rows import MAX_SOURCES as MAX_SOURCES
    from loom.stores.memory.rows import NewNote as NewNote
    from loom.stores.memory.rows import Note as Note
    from loom.stores.memory.rows import NoteBody as NoteBody
    from loom.stores.memory.rows import NoteKind as NoteKind
    from loom.stores.memory.rows import NoteScope as NoteScope
    from loom.stores.memory.rows import NoteSpeaker as NoteSpeaker
    from loom.stores.memory.uses import Use as Use
    from loom.stores.memory.uses import UsedNodes as UsedNodes
    from loom.stores.requests import SavedRequest as SavedRequest
    from loom.stores.search.home import SearchIndex as SearchIndex
    from loom.stores.search.index import FoundNode as FoundNode
    from loom.stores.search.index import StoreIndex as StoreIndex
    from loom.stores.sessions import Addition as Addition
    from loom.stores.sessions import Aside as Aside
    from loom.stores.sessions import NewSession as NewSession
    from loom.stores.sessions import Scope as Scope
    from loom.stores.sessions import SessionRow as SessionRow
    from loom.stores.sessions import Usage as Usage
    from loom.stores.settings import States as States
    from loom.stores.settings import StateValues as StateValues
    from loom.stores.snapshots import folder_beside as folder_beside
    from loom.stores.sql.database import STORE_VARIABLE as STORE_VARIABLE
    from loom.stores.sql.database import Database as Database
    from loom.stores.sql.database import Reader as Reader
    from loom.stores.sql.database import find_absent as find_absent
    from loom.stores.sql.database import open_database as open_database
    from loom.stores.sql.stored import damage_error as damage_error
    from loom.stores.sql.stored import read_stored as read_stored
    from loom.stores.states import IMPORTED as IMPORTED
    from loom.stores.states import Action as Action
    from loom.stores.states import Digits as Digits
    from loom.stores.states import ImportOrigin as ImportOrigin
    from loom.stores.states import Pin as Pin
    from loom.stores.states import Request as Request
    from loom.stores.states import Result as Result
    from loom.stores.states import Stash as Stash
    from loom.stores.states import StateKind as StateKind
    from loom.stores.store import Store as Store
    from loom.stores.summaries import Summary as Summary
    from loom.stores.tasks import NewTask as NewTask
    from loom.stores.tasks import StoredTask as StoredTask
    from loom.stores.transfer.exchange import export_all as export_all
    from loom.stores.transfer.exchange import export_session as export_session
    from loom.stores.transfer.intake import ImportedSession as ImportedSession
    from loom.stores.transfer.intake import import_lines as import_lines
    from loom.stores.transfer.lines import is_export as is_export
    from loom.stores.transfer.newcomers import Newcomers as Newcomers
    from loom.stores.tree.growth import NewNode as NewNode
    from loom.stores.tree.marks import EdgeMark as EdgeMark
    from loom.stores.tree.marks import Flag as Flag
    from loom.stores.tree.marks import FlagMark as FlagMark
    from loom.stores.tree.marks import LinkMark as LinkMark
    from loom.stores.tree.marks import Mark as Mark
    from loom.stores.tree.marks import MarkData as MarkData
    from loom.stores.tree.marks import Marks as Marks
    from loom.stores.tree.marks import Origin as Origin
    from loom.stores.tree.nodes import Draft as Draft
    from loom.stores.tree.nodes import PlannedNode as PlannedNode
    from loom.stores.tree.nodes import TreeRow as TreeRow
    from loom.stores.tree.overlay import Insertion as Insertion
    from loom.stores.tree.overlay import Overlay as Overlay
    from loom.stores.tree.path import Node as Node
    from loom.stores.tree.path import Path as Path
    from loom.stores.tree.trees import Kin as Kin
    from loom.stores.tree.trees import ListedTree as ListedTree
    from loom.stores.tree.trees import StoredTree as StoredTree
    from loom.stores.view_record import VIEW_VERSION as VIEW_VERSION
    from loom.stores.view_record import EpochProgress as EpochProgress
    from loom.stores.view_record import EpochRecord as EpochRecord
    from loom.stores.view_record import ItemRecord as ItemRecord
    from loom.stores.view_record import MapRecord as MapRecord
    from loom.stores.view_record import MemoryRecord as MemoryRecord
    from loom.stores.view_record import PieceRecord as PieceRecord
    from loom.stores.view_record import QuoteRecord as QuoteRecord
    from loom.stores.view_record import SpanRecord as SpanRecord
    from loom.stores.view_record import StoredView as StoredView
    from loom.stores.view_record import StretchRecord as StretchRecord
    from loom.stores.view_record import TextRecord as TextRecord
    from loom.stores.view_record import ToolsRecord as ToolsRecord
    from loom.stores.view_record import ViewRecord as ViewRecord
    from loom.stores.views import FoundHandle as FoundHandle
    from loom.stores.views import HandleTarget as HandleTarget
else:
    from loom.doors import open_door

    __getattr__, __dir__, __all__ = open_door(
        __name__,
        {
            "decisions.graph": (
                "DecisionCounts",
                "DecisionFilter",
                "DecisionMatches",
                "PulseCounts",
            ),
            "decisions.rows": ("DecisionScope", "StoredDecision"),
            "decisions.writing": ("Cascade", "GraphWriter"),
            "events": ("StoredEvents",),
            "health.checkup": ("Problem",),
            "health.doctor": ("examine",),
            "knowledge.documents": ("Documents",),
            "knowledge.rows": ("DocumentRow", "NewChunk", "NewDocument", "StoredChunk"),
            "memory.notes": ("NoteFilter", "note_terms"),
            "memory.rows": (
                "MAX_NOTE_CHARS",
                "MAX_SOURCES",
                "NewNote",
                "Note",
                "NoteBody",
                "NoteKind",
                "NoteScope",
                "NoteSpeaker",
            ),
            "memory.uses": ("Use", "UsedNodes"),
            "requests": ("SavedRequest",),
            "search.home": ("SearchIndex",),
            "search.index": ("FoundNode", "StoreIndex"),
            "sessions": ("Addition", "Aside", "NewSession", "Scope", "SessionRow", "Usage"),
            "settings": ("StateValues", "States"),
            "snapshots": ("folder_beside",),
            "sql.database": (
                "Database",
                "Reader",
                "STORE_VARIABLE",
                "find_absent",
                "open_database",
            ),
            "sql.stored": ("damage_error", "read_stored"),
            "states": (
                "Action",
                "Digits",
                "IMPORTED",
                "ImportOrigin",
                "Pin",
                "Request",
                "Result",
                "Stash",
                "StateKind",
            ),
            "store": ("Store",),
            "summaries": ("Summary",),
            "tasks": ("NewTask", "StoredTask"),
            "transfer.exchange": ("export_all", "export_session"),
            "transfer.intake": ("ImportedSession", "import_lines"),
            "transfer.lines": ("is_export",),
            "transfer.newcomers": ("Newcomers",),
            "tree.growth": ("NewNode",),
            "tree.marks": (
                "EdgeMark",
                "Flag",
                "FlagMark",
                "LinkMark",
                "Mark",
                "MarkData",
                "Marks",
                "Origin",
            ),
            "tree.nodes": ("Draft", "PlannedNode", "TreeRow"),
            "tree.overlay": ("Insertion", "Overlay"),
            "tree.path": ("Node", "Path"),
            "tree.trees": ("Kin", "ListedTree", "StoredTree"),
            "view_record": (
                "EpochProgress",
                "EpochRecord",
                "ItemRecord",
                "MapRecord",
                "MemoryRecord",
                "TextRecord",
                "PieceRecord",
                "QuoteRecord",
                "SpanRecord",
                "StoredView",
                "StretchRecord",
                "ToolsRecord",
                "VIEW_VERSION",
                "ViewRecord",
            ),
            "views": ("FoundHandle", "HandleTarget"),
        },
    )
