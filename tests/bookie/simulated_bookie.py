"""A bookie without tasks and without a disk, for schedules of claims: its promises, entries and searches."""

from __future__ import annotations

from gnomon.bookie.entry import StoredEntry
from gnomon.bookie.ids import NO_ENTRY, EntryId, SessionId
from gnomon.bookie.ledgers.recovery import TailEntry
from gnomon.bookie.record import Fragment


class SimulatedBookie:
    """A bookie whose entries and promises are durable at once; a crash loses only its searches for orphans."""

    def __init__(self) -> None:
        self.promised = SessionId(0)
        self.entries: dict[int, StoredEntry] = {}
        self.confirmed = NO_ENTRY
        self.bound = (SessionId(0), NO_ENTRY)
        """The bound that a fence returns: no copy that it excludes is left."""
        self.excluding = self.bound
        """The bound whose excluded copies are refused; after a crash it is `bound` again."""
        self.searches: list[tuple[SessionId, tuple[Fragment, ...], int]] = []
        """The searches for orphans in progress, each with its position."""

    def add(self, entry: EntryId, session: SessionId, confirmed: EntryId, payload: bytes) -> bool:
        if session < self.promised:
            return False
        self.promised = session
        self.confirmed = max(self.confirmed, confirmed)
        self.entries[entry] = stored(session, payload)
        return True

    def put_copy(self, session: SessionId, copy: TailEntry) -> bool:
        written_by = SessionId(int(copy.value.split(b"/")[0]))
        here = self.entries.get(copy.entry)
        if session < self.promised or (written_by < self.excluding[0] and copy.entry >= self.excluding[1]):
            return False
        if here is not None and here.session > written_by:
            return False
        self.promised = session
        self.entries[copy.entry] = stored(written_by, copy.value)
        return True

    def begin_session(self, session: SessionId, fragments: tuple[Fragment, ...]) -> None:
        if session < self.promised:
            return
        self.promised = session
        if fragments[-1].session > self.excluding[0]:
            self.excluding = (fragments[-1].session, fragments[-1].first_entry)
        self.searches.append((session, fragments, 0))

    def search(self) -> None:
        """Runs one chunk of the oldest search; a chunk has one entry."""
        session, fragments, position = self.searches.pop(0)
        if session < self.promised:
            return
        left = sorted(entry for entry in self.entries if entry >= position)
        if not left:
            last = fragments[-1]
            self.bound = max(self.bound, (last.session, last.first_entry), key=lambda bound: bound[0])
            return
        written_in = next(fragment for fragment in reversed(fragments) if fragment.first_entry <= left[0])
        if self.bound[0] < written_in.session and self.entries[left[0]].session < written_in.session:
            del self.entries[left[0]]
        self.searches.append((session, fragments, left[0] + 1))

    def crash(self) -> None:
        self.searches.clear()
        self.excluding = self.bound

    def fence(self, session: SessionId) -> bool:
        if session < self.promised:
            return False
        self.promised = session
        return True

    def read(self, entry: EntryId, minimum_session: SessionId) -> StoredEntry | None:
        found = self.entries.get(entry)
        return found if found is not None and found.session >= minimum_session else None


def stored(session: int, payload: bytes, length_bytes: int = 0) -> StoredEntry:
    view = memoryview(payload)
    return StoredEntry(SessionId(session), NO_ENTRY, length_bytes, view, view)
