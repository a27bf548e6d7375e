"""A request of a session: gather what it is made from, weave it, save what the next one needs."""

from contextlib import suppress

from msgspec.structs import replace

from loom.context import Context, Options
from loom.engine.options import RequestDetails
from loom.engine.prepare import (
    LastRequest,
    RequestInput,
    new_handles,
    prepare,
    prepare_ending,
    ratio_of,
)
from loom.engine.sessions.choices import RequestChoices
from loom.engine.sessions.gathering import RequestParts, gather_parts
from loom.engine.sessions.handoffs import hand_on, write_snapshot
from loom.engine.sessions.open_request import OpenRequest
from loom.engine.sessions.outcomes import (
    WovenRequest,
    emit_prepared,
    list_states,
    with_measures,
)
from loom.engine.sessions.place import SessionPlace
from loom.engine.views import find_reached, store_view
from loom.errors import CannotFit, ChoiceError, StoreError
from loom.stores import Request, SavedRequest


class SessionRequests:
    """The requests of a session, and what this object knows of the last one."""

    def __init__(
        self, place: SessionPlace, choices: RequestChoices, open_request: OpenRequest
    ) -> None:
        self._place, self.choices, self._open_request = place, choices, open_request
        self.last: LastRequest | None = None
        # stored for this session, each with a hash of what it stands for
        self._known_handles: dict[str, int] = {}

    def prepare(self, options: Options, details: RequestDetails) -> Context:
        """The request to send now, or a preview of it."""
        place = self._place
        place.row.check_alive()
        path, style = place.path_to(details.at), place.style(details)
        if path.end is None and not style.buffer:
            raise ChoiceError(f"session {place.id} has no messages yet; append one first")
        if path.end is None or (style.buffer and style.overlay(path).path.end is None):
            return prepare_ending(place.row, path, options, style, place.fetch)
        refused_at = self._count_refused(options, details)
        parts = gather_parts(place, options, details, style, self.last, refused_at)
        woven = self._weave(parts, details)
        self._save(parts, woven, details)
        return woven.context

    def forget_last(self) -> None:
        """Make the next request from what the store has."""
        self.last = None

    def _count_refused(self, options: Options, details: RequestDetails) -> int:
        """How many tokens the request had that was refused, uncorrected; 0 if none was. After a
        restart it is made once more to know.
        """
        if not details.overflow:
            return 0
        if self.last:
            return self.last.counted
        context = self.prepare(options, replace(details, overflow=None, preview=True))
        row = self._place.row
        return round(context.report.input_tokens / ratio_of(row, options.model or row.model))

    def _weave(self, parts: RequestParts, details: RequestDetails) -> WovenRequest:
        """The request. If a fresh window begins, it is made again with the handoff of this
        moment.
        """
        asked = parts.asked
        try:
            woven = self._weave_once(asked)
        except CannotFit as error:
            if details.overflow:
                raise _cannot_shrink(parts.refused_at, f": {error}") from None
            raise error from None
        report = woven.context.report
        if report.renewed and not details.preview and not self._place.is_guest:
            working = with_measures(parts.working, report)
            handoff = hand_on(self._place, asked.path, working, asked.handoff)
            again = self._weave_once(
                replace(asked, handoff=handoff, renewing=woven.context.continuation.reason)
            )
            woven = replace(again, is_renewed=True)
        if details.overflow and not details.preview and woven.prepared.counted >= parts.refused_at:
            raise _cannot_shrink(parts.refused_at, f"than {woven.prepared.counted:,}")
        return woven

    def _weave_once(self, asked: RequestInput) -> WovenRequest:
        """The request, with handles that stand for nothing else in the store."""
        while True:
            context, prepared = prepare(asked)
            handles = new_handles(context, prepared.reading, self._known_handles)
            clashes = self._place.store.views.clashes(self._place.row, handles.kept)
            if not clashes:
                context = replace(context, has_commands=bool(asked.style.addendum))
                return WovenRequest(
                    context=context,
                    prepared=prepared,
                    handles=handles,
                    handoff=asked.handoff,
                    is_renewed=False,
                )
            asked = replace(
                asked, options=replace(asked.options, taken=asked.options.taken | clashes)
            )

    def _save(self, parts: RequestParts, woven: WovenRequest, details: RequestDetails) -> None:
        """Keep what the next request needs: in one transaction, then in this object. Of a preview,
        only its handles.
        """
        place, handles, prepared = self._place, woven.handles, woven.prepared
        saved = SavedRequest(view=None, handles=handles.kept, inherited=handles.inherited)
        if details.preview:
            with suppress(StoreError):  # a store that can only be read will do for a look
                place.store.requests.save(place.row, saved, place.now())
            return
        end, note, asked = parts.asked.path.end, prepared.note, parts.asked
        request = Request(end.id if end else "", details.sources, prepared.model, prepared.counted)
        is_stored = prepared.view.session == place.row.key
        saved = replace(
            saved,
            view=find_reached(prepared.view) if is_stored else store_view(prepared.view),
            states=(
                *list_states(place, parts, woven, details),
                *self._open_request.values(request),
            ),
            note=(place.path[note.stop - 1], note, asked.style.now) if note else None,
        )
        place.store.requests.save(place.row, saved, place.now())
        self._known_handles |= dict.fromkeys(handles.inherited, 0) | handles.hashes
        if woven.handoff and woven.is_renewed:
            working = with_measures(parts.working, woven.context.report)
            write_snapshot(place, woven.handoff, working)
        elif woven.handoff and parts.is_handoff_new:
            write_snapshot(place, woven.handoff, parts.working)
        before = self.last.counted if self.last else 0
        self.last = replace(prepared, view=replace(prepared.view, session=place.row.key))
        self.choices.last_options = asked.options
        self._open_request.set(request)
        emit_prepared(place, woven, before, "reactive" if details.overflow else "proactive")


def _cannot_shrink(refused_at: int, why: str) -> CannotFit:
    return CannotFit(
        f"the provider refused {refused_at:,} tokens, and the request cannot be made shorter "
        f"{why}; "
        "shorten the system text, the tools or the last message"
    )
