"""The door of seed 004 to tasks and events."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom.runtime.bus import EventBus as EventBus
    from loom.runtime.subscription import Subscription as Subscription
    from loom.runtime.task import Task as Task
    from loom.runtime.task import TaskStatus as TaskStatus
else:
    from loom.doors import open_door

    __getattr__, __dir__, __all__ = open_door(
        __name__,
        {
            "bus": ("EventBus",),
            "subscription": ("Subscription",),
            "task": ("Task", "TaskStatus"),
        },
    )
