"""Where conversations are kept: one seam over SQLite and PostgreSQL, and what is stored there."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom.stores.health.checkup import Problem as Problem
    from loom.stores.health.doctor import examine as examine
    from loom.stores.requests import SavedRequest as SavedRequest
    from loom.stores.sessions import Addition as Addition
    from loom.stores.sessions import Aside as Aside
    from loom.stores.sessions import NewSession as NewSession
    from loom.stores.sessions import Scope as Scope
    from loom.stores.sessions import SessionRow as SessionRow
    from loom.stores.sessions import Usage as Usage
    from loom.stores.sessions import check_alive as check_alive
    from loom.stores.sessions import check_name as check_name
    from loom.stores.settings import States as States
    from loom.stores.settings import StateValues as StateValues
    from loom.stores.snapshots import folder_beside as folder_beside
    from loom.stores.sql.database import STORE_VARIABLE as STORE_VARIABLE
    from loom.stores.sql.database import default_address as default_address
    from loom.stores.sql.database import open_database as open_database
    from loom.stores.sql.stored import UNREADABLE as UNREADABLE
    from loom.stores.sql.stored import damage_error as damage_error
    from loom.stores.sql.stored import decode_stored as decode_stored
    from loom.stores.sql.stored import read_stored as read_stored
    from loom.stores.states import REQUEST as REQUEST
    from loom.stores.states import STORE_KINDS as STORE_KINDS
    from loom.stores.states import Action as Action
    from loom.stores.states import Digits as Digits
    from loom.stores.states import Pin as Pin
    from loom.stores.states import Request as Request
    from loom.stores.states import Result as Result
    from loom.stores.states import Stash as Stash
    from loom.stores.states import StateKind as StateKind
    from loom.stores.states import StateKinds as StateKinds
    from loom.stores.states import is_unnamed as is_unnamed
    from loom.stores.states import read_state as read_state
    from loom.stores.store import Store as Store
    from loom.stores.summaries import Summary as Summary
    from loom.stores.summaries import join_texts as join_texts
    from loom.stores.summaries import name_of as name_of
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
    from loom.stores.tree.marks import flags_as_marks as flags_as_marks
    from loom.stores.tree.nodes import Draft as Draft
    from loom.stores.tree.nodes import PlannedNode as PlannedNode
    from loom.stores.tree.nodes import TreeRow as TreeRow
    from loom.stores.tree.nodes import plain as plain
    from loom.stores.tree.overlay import Insertion as Insertion
    from loom.stores.tree.overlay import Overlay as Overlay
    from loom.stores.tree.overlay import kept_back as kept_back
    from loom.stores.tree.overlay import marked_in as marked_in
    from loom.stores.tree.overlay import names_at as names_at
    from loom.stores.tree.overlay import read_overlay as read_overlay
    from loom.stores.tree.path import Node as Node
    from loom.stores.tree.path import OpenTransaction as OpenTransaction
    from loom.stores.tree.path import Path as Path
    from loom.stores.tree.path import meeting as meeting
    from loom.stores.tree.trees import Kin as Kin
    from loom.stores.tree.trees import ListedTree as ListedTree
    from loom.stores.tree.trees import StoredTree as StoredTree
    from loom.stores.view_record import VIEW_VERSION as VIEW_VERSION
    from loom.stores.view_record import EpochProgress as EpochProgress
    from loom.stores.view_record import EpochRecord as EpochRecord
    from loom.stores.view_record import ItemRecord as ItemRecord
    from loom.stores.view_record import MapRecord as MapRecord
    from loom.stores.view_record import PieceRecord as PieceRecord
    from loom.stores.view_record import SpanRecord as SpanRecord
    from loom.stores.view_record import StoredView as StoredView
    from loom.stores.view_record import StretchRecord as StretchRecord
    from loom.stores.view_record import ViewRecord as ViewRecord
    from loom.stores.views import HandleTarget as HandleTarget
    from loom.stores.views import span_at as span_at
    from loom.stores.views import text_at as text_at
else:
    from loom.doors import open_door

    __getattr__, __dir__, __all__ = open_door(
        __name__,
        {
            "health.checkup": ("Problem",),
            "health.doctor": ("examine",),
            "requests": ("SavedRequest",),
            "sessions": (
                "Addition",
                "Aside",
                "NewSession",
                "Scope",
                "SessionRow",
                "Usage",
                "check_alive",
                "check_name",
            ),
            "settings": ("StateValues", "States"),
            "snapshots": ("folder_beside",),
            "sql.database": ("STORE_VARIABLE", "default_address", "open_database"),
            "sql.stored": ("UNREADABLE", "damage_error", "decode_stored", "read_stored"),
            "states": (
                "Action",
                "Digits",
                "Pin",
                "REQUEST",
                "Request",
                "Result",
                "STORE_KINDS",
                "Stash",
                "StateKind",
                "StateKinds",
                "is_unnamed",
                "read_state",
            ),
            "store": ("Store",),
            "summaries": ("Summary", "join_texts", "name_of"),
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
                "flags_as_marks",
            ),
            "tree.nodes": ("Draft", "PlannedNode", "TreeRow", "plain"),
            "tree.overlay": (
                "Insertion",
                "Overlay",
                "kept_back",
                "marked_in",
                "names_at",
                "read_overlay",
            ),
            "tree.path": ("Node", "OpenTransaction", "Path", "meeting"),
            "tree.trees": ("Kin", "ListedTree", "StoredTree"),
            "view_record": (
                "EpochProgress",
                "EpochRecord",
                "ItemRecord",
                "MapRecord",
                "PieceRecord",
                "SpanRecord",
                "StoredView",
                "StretchRecord",
                "VIEW_VERSION",
                "ViewRecord",
            ),
            "views": ("HandleTarget", "span_at", "text_at"),
        },
    )
