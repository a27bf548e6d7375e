"""The request that the next answer answers: this object knows it, and the store if others may take
the answer.
"""

from loom.engine.session_state import request_values
from loom.engine.sessions.place import SessionPlace
from loom.stores import Request, StateValues


class OpenRequest:
    """The last request of a session, and which of its answers came.

    `is_lasting`: others may take the answer, so the store has to know the request.
    """

    def __init__(self, place: SessionPlace, is_lasting: bool) -> None:
        self._place, self.is_lasting = place, is_lasting
        self._request: Request | None = None
        self._is_stored = False

    def find(self, cursor: str) -> Request | None:
        """The request of this object, else the last one in the store."""
        return self._request or self._read(cursor)

    def _read(self, cursor: str) -> Request | None:
        """The last request in the store, without that of another object which was never
        answered.
        """
        request = self._place.state.request
        self._is_stored = request is not None
        if request and not self.is_lasting and request.answer is None and request.node != cursor:
            return None
        return request

    def set(self, request: Request) -> None:
        """Remember a request here. The store gets its `values` with what is stored of it."""
        self._request = request

    def keep(self, request: Request, lasting: bool = False) -> None:
        """Remember a request, in the store too if another object may have to know it."""
        self._request = request
        self._place.keep_states(*self.values(request, lasting))

    def values(self, request: Request, lasting: bool = False) -> list[StateValues]:
        """What the store has to know of a request."""
        if self._place.is_guest or not (
            self.is_lasting or lasting or request.sources or self._is_stored
        ):
            return []
        self._is_stored = True
        return [request_values(request)]
