"""What happens to sessions, published on a bus: the one way from `Loom.listen` to `EventBus`.

Events are published by a thread, in their order, so that no verb waits for the bus.
"""

import threading
import warnings
from queue import SimpleQueue
from typing import Any

from loom.engine.workspace import Event, Workspace
from loom.errors import LoomError
from loom.runtime import EventBus, Task
from loom.runtime.checks import copy_json, from_milliseconds

ACTION_PREFIX = "session."
_WORDS = frozenset({"title"})  # what people wrote stays in the session


class EventEmitter:
    """Publishes each event of a workspace as a task."""

    def __init__(self, workspace: Workspace, bus: EventBus) -> None:
        self._workspace, self._bus = workspace, bus
        self._waiting: SimpleQueue[Event | threading.Event | None] = SimpleQueue()
        self._labels: dict[str, str | None] = {}
        self._thread = threading.Thread(target=self._run, name="loom-emitter", daemon=True)
        self._thread.start()

    def __call__(self, event: Event) -> None:
        self._waiting.put(event)

    def flush(self) -> None:
        """Wait until what happened before is published."""
        done = threading.Event()
        self._waiting.put(done)
        while self._thread.is_alive() and not done.wait(0.05):
            pass

    def close(self) -> None:
        """Publish what waits, and nothing more."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None:
            if isinstance(event, threading.Event):
                event.set()
                continue
            try:
                self._bus.publish(self._to_task(event))
            except LoomError as error:  # what happened has happened
                warnings.warn(
                    f"{event.kind!r} was not published: {error}", RuntimeWarning, stacklevel=2
                )

    def _to_task(self, event: Event) -> Task:
        what = {name: _to_plain(each) for name, each in event.what.items() if name not in _WORDS}
        return Task(
            action=f"{ACTION_PREFIX}{event.kind}",
            source_agent=self._workspace.scope.agent,
            session_id=self._label_of(event.session),
            created_at=from_milliseconds(event.at),
            parameters={
                **what,
                "node_id": event.session,
                "session": event.session,
                "node": event.node,
            },
        )

    def _label_of(self, session: str) -> str | None:
        if session and session not in self._labels:
            store, scope = self._workspace.store, self._workspace.scope
            self._labels[session] = store.tasks.label_of(scope, session)
        return self._labels.get(session)


def _to_plain(value: Any) -> Any:
    try:
        return copy_json("it", value)
    except LoomError:
        return repr(value)
