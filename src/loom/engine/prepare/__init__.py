"""From a stored path to the request that is sent now, reading only what the window needs.

request.py    the steps: find what the store has, continue with the last epoch, or begin one
standing.py   what of the last epoch still stands, and its place in what was read now
summaries.py  what summaries tell, and where
overflow.py   what a request leaves out after a provider refused the last one
remember.py   what a session remembers of a request
"""

from loom.engine.prepare.remember import LastRequest, NewHandles, calibration, new_handles, ratio_of
from loom.engine.prepare.request import RequestInput, prepare, prepare_ending
from loom.engine.prepare.summaries import BY_PERSON

__all__ = [
    "BY_PERSON",
    "LastRequest",
    "NewHandles",
    "RequestInput",
    "calibration",
    "new_handles",
    "prepare",
    "prepare_ending",
    "ratio_of",
]
