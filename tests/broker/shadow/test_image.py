"""The image of a source: from its records, from its bookies' answers and from replicated entries."""

from __future__ import annotations

import pytest

from gnomon.bookie.ids import EntryId, SessionId
from gnomon.bookie.record import Fragment, LedgerRecord, LedgerState, Quorum
from gnomon.broker.shadow.image import ANY_OFFSET, WAITING_MAX, RefusedEntry, ReplicatedEntry, SourceImage
from gnomon.log.entry import NO_ABORT, EntryHeader, EntryKind, LeaderEpoch, Offset
from gnomon.log.segment_record import EPOCH, MAX_TIMESTAMP, NEXT_OFFSET, START_OFFSET, segment_name
from gnomon.metadata.client import Event, KeyValue, Revision

PREFIX = "ledgers/topics/x/0/"


def item(
    base: int, *, revision: int = 1, last: int | None = None, end: int = 0, session: int = 1, **more: int
) -> KeyValue:
    properties = {EPOCH: more.pop("epoch", 0), MAX_TIMESTAMP: 0, NEXT_OFFSET: end}
    if "start_offset" in more:
        properties[START_OFFSET] = more.pop("start_offset")
    record = LedgerRecord(
        Quorum(),
        (Fragment(EntryId(0), SessionId(session), ()),),
        session=SessionId(session),
        state=LedgerState.OPEN if last is None else LedgerState.SEALED,
        start_entry=EntryId(more.pop("start_entry", 0)),
        last_entry=EntryId(-1 if last is None else last),
        properties=properties,
    )
    key = segment_name(PREFIX, Offset(base), more.pop("cleaning", 0))
    return KeyValue(key, record.encode(), Revision(base + 1), Revision(revision), revision)


def put(image: SourceImage, *items: KeyValue) -> None:
    image.apply([Event(one.key, one) for one in items])


def header(base: int, end: int, epoch: int = 0) -> EntryHeader:
    return EntryHeader(EntryKind.BATCH, LeaderEpoch(epoch), Offset(base), Offset(end), Offset(end), 0, 0, NO_ABORT)


def replicated_entry(segment: int, entry: int, confirmed: int | None = None, session: int = 1) -> ReplicatedEntry:
    last = entry if confirmed is None else confirmed
    return ReplicatedEntry(Offset(segment), SessionId(session), EntryId(entry), EntryId(last))


def bounds(image: SourceImage) -> tuple[int, int, int]:
    return image.start_offset, image.high_watermark, image.epoch


def test_an_open_segment_shows_its_entries_that_were_read_and_a_sealed_one_all_of_them() -> None:
    image = SourceImage()
    image.replace([item(0, last=4, end=10), item(10, epoch=2)])
    assert bounds(image) == (0, 10, 2)
    assert image.confirmed(Offset(10), header(10, 13, 2))
    assert not image.confirmed(Offset(10), header(10, 12, 2)), "what is older changes nothing"
    assert bounds(image) == (0, 13, 2)
    put(image, item(10, last=1, end=15, revision=2), item(15, epoch=2))
    assert bounds(image) == (0, 15, 2)


def test_neither_the_start_nor_the_high_watermark_goes_back() -> None:
    image = SourceImage()
    image.replace([item(0)])
    image.confirmed(Offset(0), header(0, 7))
    put(image, item(0, start_offset=5, start_entry=3, revision=2))
    assert bounds(image) == (5, 7, 0)
    image.replace([item(0, epoch=1, revision=3)])
    assert bounds(image) == (5, 7, 1)


def test_a_log_that_was_emptied_starts_at_its_end() -> None:
    image = SourceImage()
    image.replace([item(0)])
    put(image, item(0, start_offset=9, start_entry=4, revision=2))
    assert bounds(image) == (9, 9, 0)


def test_dropped_segments_move_the_start() -> None:
    image = SourceImage()
    image.replace([item(0, last=1, end=2), item(2, last=1, end=4), item(4)])
    image.apply([Event(segment_name(PREFIX, Offset(0)), None), Event(segment_name(PREFIX, Offset(1)), None)])
    assert [segment.base_offset for segment in image.segments] == [2, 4]
    assert bounds(image) == (2, 4, 0)


def test_a_ledger_that_replaces_segments_is_shown_instead_of_them_in_any_order_of_the_events() -> None:
    gone = [Event(segment_name(PREFIX, Offset(base)), None) for base in (0, 2)]
    cleaned = item(0, last=1, end=4, cleaning=1, revision=9)
    for events in ([*gone, Event(cleaned.key, cleaned)], [Event(cleaned.key, cleaned), *gone]):
        image = SourceImage()
        image.replace([item(0, last=1, end=2), item(2, last=1, end=4), item(4)])
        image.apply(events)
        assert [(one.base_offset, one.cleaning) for one in image.segments] == [(0, 1), (4, 0)]
        assert bounds(image) == (0, 4, 0)


def test_a_reader_ahead_gets_an_error_only_after_the_image_is_settled() -> None:
    image = SourceImage()
    assert image.next_offset == ANY_OFFSET
    image.settled = True
    assert image.next_offset == 0


def test_an_epoch_may_be_known_from_an_entry_before_its_record_arrives() -> None:
    image = SourceImage()
    image.replace([item(0)])
    image.confirmed(Offset(0), header(0, 1, 3))
    assert image.epoch == 3


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (replicated_entry(0, 0), "that segment is gone"),
        (replicated_entry(11, 0), "there is no such segment"),
        (replicated_entry(10, 1), "the segment begins with entry 2"),
        (replicated_entry(10, 5), "the segment ends with entry 4"),
        (replicated_entry(10, 3, 5), "the segment ends with entry 4"),
        (replicated_entry(10, 3, 2), "is not confirmed"),
        (replicated_entry(10, -1), "is not confirmed"),
        (replicated_entry(20, 0, session=2), "session 2 is over, 3 has taken the segment"),
        (replicated_entry(10, 3, session=2), "was sealed in session 1"),
    ],
)
def test_a_replicated_entry_that_contradicts_the_records_is_refused(one: ReplicatedEntry, why: str) -> None:
    image = SourceImage()
    image.replace([item(10, last=4, end=20, start_entry=2), item(20, session=3)])
    with pytest.raises(RefusedEntry, match=why):
        image.judge(one)
    assert image.waiting() == ()


def test_a_replicated_entry_of_an_unknown_segment_or_session_waits_for_its_record() -> None:
    image = SourceImage()
    image.replace([item(0)])
    for one in (replicated_entry(5, 0), replicated_entry(0, 3, session=2)):
        assert image.judge(one) is None
    waiting = image.waiting()
    assert waiting == (replicated_entry(5, 0), replicated_entry(0, 3, session=2))
    put(image, item(0, last=3, end=5, session=2, revision=2), item(5))
    assert [image.judge(one) for one in waiting] == [image.segments[1], image.segments[0]]
    assert image.waiting() == ()


def test_the_number_and_bytes_of_waiting_entries_are_bounded() -> None:
    image = SourceImage()
    for number in range(WAITING_MAX + 10):
        image.judge(replicated_entry(5, number))
    waiting = image.waiting()
    assert len(waiting) == WAITING_MAX
    assert waiting[-1].entry == WAITING_MAX + 9
