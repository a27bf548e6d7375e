"""The door of seed 004: what a task remembers and what of it a model sees."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom.memory.loom_memory import LoomMemory as LoomMemory
    from loom.memory.loom_memory import TaskSummary as TaskSummary
else:
    from loom.doors import open_door

    __getattr__, __dir__, __all__ = open_door(
        __name__, {"loom_memory": ("LoomMemory", "TaskSummary")}
    )
