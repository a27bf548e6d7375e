"""The public fake: a model that answers from a script, in this process or as a server."""

from loom.providers.scripted.model import ScriptedModel
from loom.providers.scripted.server import ScriptedServer
from loom.providers.scripted.steps import (
    BreakOff,
    Drip,
    Refuse,
    Reset,
    Step,
    TooLong,
    Wait,
)

__all__ = [
    "BreakOff",
    "Drip",
    "Refuse",
    "Reset",
    "ScriptedModel",
    "ScriptedServer",
    "Step",
    "TooLong",
    "Wait",
]
