"""A source that appends, rolls, trims and changes its owner, and an image that learns of it late."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gnomon.bookie import record as records
from gnomon.bookie.ids import FIRST_ENTRY, FIRST_SESSION, EntryId, SessionId
from gnomon.bookie.record import Fragment, LedgerRecord, Quorum
from gnomon.broker.shadow.image import RefusedEntry, ReplicatedEntry, SourceImage
from gnomon.log.entry import NO_ABORT, EntryHeader, EntryKind, LeaderEpoch, Offset
from gnomon.log.segment_record import EPOCH, MAX_TIMESTAMP, NEXT_OFFSET, START_OFFSET, segment_name
from gnomon.metadata.client import Event, KeyValue, Revision

PREFIX = "ledgers/topics/x/0/"


@dataclass
class Written:
    """One segment as the source has it: the headers of its entries, all confirmed."""

    base_offset: Offset
    record: LedgerRecord
    created: Revision
    headers: list[EntryHeader] = field(default_factory=list)

    def stored(self, revision: Revision) -> KeyValue:
        return KeyValue(segment_name(PREFIX, self.base_offset), self.record.encode(), self.created, revision, 1)


class ShadowedSource(RuleBasedStateMachine):
    """The image shows only records of its source, which is always right, and finally all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.image = SourceImage()
        self.revision = Revision(0)
        self.epoch = 0
        self.start_offset = self.high_watermark = Offset(0)
        self.segments: list[Written] = []
        self.on_their_way: list[list[Event]] = []
        self.before = (Offset(0), Offset(0), LeaderEpoch(0))
        self._begin()

    # --- the source ---

    def _begin(self) -> None:
        properties = {EPOCH: self.epoch, MAX_TIMESTAMP: 0}
        record = LedgerRecord(Quorum(), (Fragment(FIRST_ENTRY, FIRST_SESSION, ()),), properties=properties)
        self.segments.append(Written(self.high_watermark, record, Revision(self.revision + 1)))
        self._change(self.segments[-1])

    def _change(self, *changed: Written, gone: tuple[Written, ...] = ()) -> None:
        self.revision = Revision(self.revision + 1)
        stored = [one.stored(self.revision) for one in changed]
        events = [Event(item.key, item) for item in stored]
        self.on_their_way.append(events + [Event(segment_name(PREFIX, one.base_offset), None) for one in gone])

    @property
    def last(self) -> Written:
        return self.segments[-1]

    @rule(count=st.integers(1, 3), snapshot=st.booleans())
    def append(self, count: int, snapshot: bool) -> None:
        end = self.high_watermark if snapshot else Offset(self.high_watermark + count)
        kind = EntryKind.PRODUCERS if snapshot else EntryKind.BATCH
        self.last.headers.append(
            EntryHeader(kind, LeaderEpoch(self.epoch), self.high_watermark, end, end, 0, 0, NO_ABORT)
        )
        self.high_watermark = end

    @rule()
    def claim(self) -> None:
        self.epoch += 1
        last = self.last
        session = SessionId(last.record.session + 1)
        claimed = records.claim(last.record, session, EntryId(len(last.headers) - 1))
        last.record = claimed.with_properties({**claimed.properties, EPOCH: self.epoch})
        self._change(last)

    @precondition(lambda self: self.high_watermark > self.last.base_offset)
    @rule()
    def roll(self) -> None:
        last = self.last
        sealed = records.seal(last.record, EntryId(len(last.headers) - 1), 0)
        last.record = sealed.with_properties({**sealed.properties, NEXT_OFFSET: self.high_watermark})
        self._begin()
        self.on_their_way[-1].insert(0, Event(segment_name(PREFIX, last.base_offset), last.stored(self.revision)))

    @rule(keep=st.integers(0, 6))
    def trim(self, keep: int) -> None:
        """Trims up to `keep` offsets before the end: deletes whole segments, then shrinks the first one left."""
        self.start_offset = max(self.start_offset, Offset(self.high_watermark - keep))
        count = sum(one.base_offset <= self.start_offset for one in self.segments[1:])
        gone, self.segments = tuple(self.segments[:count]), self.segments[count:]
        if gone:
            self._change(gone=gone)
        first = self.segments[0]
        entry = sum(header.next_offset <= self.start_offset for header in first.headers)
        shrunk = records.shrink(first.record, EntryId(entry), 0)
        first.record = shrunk.with_properties({**shrunk.properties, START_OFFSET: self.start_offset})
        self._change(first)

    # --- events at the shadow ---

    @precondition(lambda self: self.on_their_way)
    @rule(again=st.booleans())
    def watch(self, again: bool) -> None:
        if again:  # events were missed: all segments are listed
            self.on_their_way.clear()
            self.image.replace([one.stored(self.revision) for one in self.segments])
        else:
            self.image.apply(self.on_their_way.pop(0))
        for replicated in self.image.waiting():
            self._take(replicated, true=False)

    def _known(self, segment: Written) -> bool:
        """Whether the image has the record of this segment's current session."""
        known = [one for one in self.image.segments if one.base_offset == segment.base_offset]
        return bool(known) and known[0].record.session == segment.record.session

    @precondition(lambda self: self.last.headers)
    @rule(back=st.integers(0, 3))
    def hear(self, back: int) -> None:
        """A bookie reports a LAC, perhaps an older one; its entry is read if the image has the current record."""
        entry = max(0, len(self.last.headers) - 1 - back)
        if self._known(self.last) and entry >= self.last.record.start_entry:
            self.image.confirmed(self.last.base_offset, self.last.headers[entry])

    @precondition(lambda self: self.last.headers)
    @rule(back=st.integers(0, 3))
    def tell(self, back: int) -> None:
        entry = EntryId(max(0, len(self.last.headers) - 1 - back))
        self._take(ReplicatedEntry(self.last.base_offset, self.last.record.session, entry, entry), true=True)

    @precondition(lambda self: self.last.headers and not self.on_their_way)
    @rule(lie=st.integers(0, 4))
    def tell_lies(self, lie: int) -> None:
        entry = EntryId(len(self.last.headers) - 1)
        truth = ReplicatedEntry(self.last.base_offset, self.last.record.session, entry, entry)
        first = self.image.segments[0]
        lies = [
            truth._replace(entry=EntryId(entry + 1)),
            truth._replace(session=SessionId(truth.session - 1)),
            truth._replace(segment=Offset(first.base_offset - 1)),
            truth._replace(entry=EntryId(-1)),
            truth._replace(segment=first.base_offset, session=first.record.session, last_add_confirmed=EntryId(1 << 40))
            if first.record.sealed
            else truth._replace(last_add_confirmed=EntryId(-1)),
        ]
        try:
            self.image.judge(lies[lie])
        except RefusedEntry:
            return
        raise AssertionError(f"{lies[lie]} was taken, or waits")

    def _take(self, replicated: ReplicatedEntry, *, true: bool) -> None:
        try:
            segment = self.image.judge(replicated)
        except RefusedEntry:
            assert not true or self._is_old(replicated), f"{replicated} was refused"
            return
        if segment is not None:
            written = next((one for one in self.segments if one.base_offset == replicated.segment), None)
            if written is not None and replicated.last_add_confirmed < len(written.headers):
                self.image.confirmed(replicated.segment, written.headers[replicated.last_add_confirmed])

    def _is_old(self, replicated: ReplicatedEntry) -> bool:
        return replicated.entry < self.last.record.start_entry

    # --- invariants ---

    @invariant()
    def never_ahead_of_the_source_and_never_back(self) -> None:
        image = self.image
        assert image.start_offset <= image.high_watermark <= image.next_offset
        assert image.start_offset <= self.start_offset
        assert image.high_watermark <= self.high_watermark
        assert image.epoch <= self.epoch
        now = (image.start_offset, image.high_watermark, image.epoch)
        assert all(after >= before for before, after in zip(self.before, now, strict=True))
        self.before = now

    @invariant()
    def all_segments_but_the_last_are_sealed(self) -> None:
        assert all(segment.record.sealed for segment in self.image.segments[:-1])
        bases = [segment.base_offset for segment in self.image.segments]
        assert bases == sorted(set(bases))

    def teardown(self) -> None:
        while self.on_their_way:
            self.image.apply(self.on_their_way.pop(0))
        if self.last.headers and len(self.last.headers) > self.last.record.start_entry:
            self.image.confirmed(self.last.base_offset, self.last.headers[-1])
        assert (self.image.start_offset, self.image.high_watermark) == (self.start_offset, self.high_watermark)
        assert self.image.epoch == self.epoch


def test_an_image_shows_only_its_source_and_finally_all_of_it() -> None:
    run_state_machine_as_test(
        ShadowedSource, settings=settings(max_examples=200, stateful_step_count=40, deadline=None)
    )
