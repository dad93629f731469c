"""The replication protocol: its messages, and the window and the acks of one connection."""

from __future__ import annotations

import pytest

from gnomon.bookie.ids import EntryId, SessionId
from gnomon.broker.replication.outbox import EntryRun
from gnomon.broker.replication.protocol import (
    FRAMES_MAX,
    RECONNECT,
    WINDOW_BYTES,
    Ack,
    MalformedReplication,
    Nack,
    NackReason,
    OpenFrame,
    PendingAck,
    ReceivedMessage,
    Replicate,
    Window,
    decode_frame,
)
from gnomon.broker.shadow.image import ReplicatedEntry
from gnomon.log.entry import Offset

SHADOW, OTHER = bytes(16), bytes(15) + b"1"


def run(first: int, last: int) -> EntryRun:
    return EntryRun(
        Offset(0), SessionId(1), EntryId(first), EntryId(last), Offset(first), Offset(last + 1), 10 * (last + 1), 0.0
    )


def received(*shadows: bytes) -> ReceivedMessage:
    return ReceivedMessage(list(shadows), 0, [])


def test_a_message_is_received_as_the_last_entry_of_each_run_and_entries_go_with_the_last_run() -> None:
    message = Replicate([SHADOW], 3, [run(0, 4), run(5, 6)], [None, b"six"])
    shadows, partition, entries = ReceivedMessage.decode(message.encode())
    assert (shadows, partition) == ([SHADOW], 3)
    assert entries == [
        ReplicatedEntry(Offset(0), SessionId(1), EntryId(4), EntryId(4), next_offset=Offset(5)),
        ReplicatedEntry(Offset(0), SessionId(1), EntryId(6), EntryId(6), b"six", (None,), Offset(7)),
    ]


def test_a_shadow_that_a_message_names_often_receives_it_once() -> None:
    shadows, _, entries = ReceivedMessage.decode(Replicate([SHADOW] * 1000, 0, [run(1, 1)], []).encode())
    assert (shadows, len(entries)) == ([SHADOW], 1)


def test_a_frame_with_a_malformed_message_is_refused_as_a_whole() -> None:
    good = Replicate([SHADOW], 0, [run(1, 1)], []).encode()
    assert decode_frame([7, [good]]) == (7, [ReceivedMessage.decode(good)])
    with pytest.raises(MalformedReplication, match="a list of 4 was expected"):
        decode_frame([7, [good, []]])


def test_an_ack_is_decoded_as_it_was_encoded_and_another_form_is_refused() -> None:
    ack = Ack(7, [Nack(SHADOW, 0, NackReason.REFUSED, "no such segment"), Nack(OTHER, 1, NackReason.NO_READER, "")])
    assert Ack.decode(ack.encode()) == ack
    nack = [SHADOW, 0, "refused", ""]
    for item in (
        None,
        [1],
        ["1", []],
        [1, None],
        [1, [nack[:3]]],
        [1, [[[], *nack[1:]]]],
        [1, [[SHADOW, 0, "tired", ""]]],
        [1, [[SHADOW, 0, [], ""]]],
    ):
        with pytest.raises(ValueError, match=r"expected|number|a nack is|valid"):
            Ack.decode(item)


def test_entries_are_sent_with_their_ids_while_the_frame_has_room_for_all_of_them() -> None:
    frame = OpenFrame(100)
    assert frame.inline([b"a" * 50, b"b" * 70, b"c" * 40], 60) == [b"a" * 50, None, b"c" * 40]
    assert frame.inline([b"d" * 5, b"e" * 6], 60) == ()
    assert frame.inline([b"d" * 10], 60) == [b"d" * 10]


def test_the_window_is_full_by_bytes_or_frames_until_they_are_acknowledged_or_lost() -> None:
    window = Window()
    assert window.room_bytes == WINDOW_BYTES
    window.sent(1000)
    window.sent(WINDOW_BYTES - 1000)
    assert window.room_bytes == 0
    window.acked(1)
    assert window.room_bytes == 1000
    window.acked(2)
    for _ in range(FRAMES_MAX):
        assert window.room_bytes > 0
        window.sent(1)
    assert window.room_bytes == 0
    window.lost()
    assert window.room_bytes == WINDOW_BYTES
    assert window.frame == FRAMES_MAX + 2, "a number is used once"


def test_connecting_to_an_absent_broker_is_tried_less_and_less_often_until_its_first_ack() -> None:
    window = Window()
    pauses = [window.lost() for _ in range(10)]
    assert pauses[:3] == [RECONNECT.seconds(1), RECONNECT.seconds(2), RECONNECT.seconds(3)]
    assert pauses[-1] == RECONNECT.seconds_max
    window.acked(0)
    assert window.lost() == RECONNECT.seconds_min


def test_a_quarter_of_the_window_is_acknowledged_at_once() -> None:
    pending = PendingAck()
    pending.received(1, WINDOW_BYTES // 4)
    assert not pending.urgent
    pending.received(2, 1)
    assert pending.urgent
    assert pending.take() == Ack(2, [])
    pending.received(2 + FRAMES_MAX // 4, 1)
    assert not pending.urgent
    pending.received(3 + FRAMES_MAX // 4, 1)
    assert pending.urgent


def test_until_the_ack_the_next_message_drops_a_nack_without_reader_but_not_a_nack_for_lost_leadership() -> None:
    def nack(shadow: bytes, reason: NackReason) -> Nack:
        return Nack(shadow, 0, reason, "")

    pending = PendingAck()
    moved = nack(OTHER, NackReason.NOT_LEADER)
    pending.applied(received(SHADOW, OTHER), [nack(SHADOW, NackReason.NO_READER), moved])
    pending.applied(received(SHADOW, OTHER), [nack(OTHER, NackReason.REFUSED)])
    assert pending.take() == Ack(0, [moved])
    assert pending.take() == Ack(0, [])
    pending.applied(received(OTHER), [nack(OTHER, NackReason.REFUSED)])
    assert pending.take() == Ack(0, [nack(OTHER, NackReason.REFUSED)])
