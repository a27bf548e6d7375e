"""A session that is kept.

session.py       what callers use: each verb, and where it is done
place.py         where a session is in its tree, what it has at hand, how it reads
writing.py       messages, a node anywhere, a draft
choices.py       folder, configuration, policy and options, if a caller names none
asking.py        before a request: the question to knowledge bases, what is written first
gathering.py     what a request is made from
requests.py      a request: gather, weave, save
outcomes.py      what a request leaves behind
open_request.py  the request that the next answer answers
absorbing.py     an answer is written where it belongs
summaries.py     by a person, by a model, behind the scenes
handoffs.py      to a fresh window, to files, to whoever continues after a crash
tool_calls.py    which calls are run here, and which were begun
recall.py        handles and search
pins.py          messages that stay
stashes.py       texts under labels
lifecycle.py     fork, switch, change, undo, purge
"""

from loom.engine.sessions.handoffs import ResumePoint
from loom.engine.sessions.session import Session
from loom.engine.sessions.stashes import MAX_STASH_CHARS, MAX_STASHES

__all__ = ["MAX_STASHES", "MAX_STASH_CHARS", "ResumePoint", "Session"]
