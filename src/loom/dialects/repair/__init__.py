"""Mend a conversation so that every wire accepts it, and report each change."""

from loom.dialects.repair.histories import RepairedConversation, SeenHistories, repair, restore_ids
from loom.dialects.repair.mender import UNANSWERED, Change, Mender
from loom.dialects.repair.settings import (
    has_marks,
    limit_unstreamed,
    mend_marks_as_they_pass,
    mend_settings,
)

__all__ = [
    "UNANSWERED",
    "Change",
    "Mender",
    "RepairedConversation",
    "SeenHistories",
    "has_marks",
    "limit_unstreamed",
    "mend_marks_as_they_pass",
    "mend_settings",
    "repair",
    "restore_ids",
]
