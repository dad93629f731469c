"""What a hostile client sends. Each attack is a few frames on one or several connections."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgpack
from frames import compact, kafka_frame, produce_body, read_frame, text
from widest import widest

from gnomon.broker.partition.conditions.marks import RECORDS_AT_ONCE_MAX
from gnomon.broker.partition.unpacking.recoding import AT_ONCE_BYTES_MAX
from gnomon.wire import rpc
from gnomon.wire.kafka.compression import Codec
from gnomon.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gnomon.wire.kafka.records import Record, build_batch
from gnomon.wire.kafka.schema import encode

REQUEST_BYTES = 8 << 20
BODY_BYTES = REQUEST_BYTES - 100
BOMB_BYTES = 30 << 20
SECONDS_MAX = 60.0
TOPIC, GZIP_TOPIC, WIDE_TOPIC, TIMED_TOPIC = "attacked", "recompressed", "wide", "timed"
GZIP_PARTITIONS = 20
LASTING_BOMBS = 6
"""Batches of 400 KiB; the checksums and the copies of many would be the length of the turn."""
HEALTHY_GZIP_TOPIC = "recompressed-too"
TIMED_RECORDS, TIMED_MS = 100_000, 1_000_000
"""The records of the one batch of TIMED_TOPIC, and the timestamp of its last one; all others are at 0."""
WIDE_PARTITIONS = 500
CONDITIONAL_TOPIC, CONDITIONAL_PARTITIONS = "conditional", 20
TABLE_TOPIC, DISK_TABLE_TOPIC, TABLE_KEYS = "table", "table-on-disk", 20_000
WATCHED_TOPIC, WATCHES = "watched-table", 1_000
TABLE_IDS: dict[str, str] = {}
"""The ids of tables, once they were created."""
TERMED_RECORDS = 20_000
"""The most records of a batch on a topic whose records may have terms."""


@dataclass(frozen=True, slots=True)
class Attack:
    """`frames` are sent one after the other, each after the answer to the previous one, on every connection."""

    name: str
    frames: Callable[[], Iterator[bytes]]
    connections: int = 1
    native: bool = False

    def run(self, address: tuple[str, int]) -> None:
        """Returns when every connection has its last answer, or was closed by the node."""
        frames = list(self.frames())
        threads = [threading.Thread(target=_send, args=(address, frames)) for _ in range(self.connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _send(address: tuple[str, int], frames: list[bytes]) -> None:
    with socket.create_connection(address, timeout=SECONDS_MAX) as stream:
        try:
            for frame in frames:
                stream.sendall(frame)
                read_frame(stream)
        except (EOFError, ConnectionError):
            pass


def _kafka(key: int, version: int, *bodies: bytes) -> Callable[[], Iterator[bytes]]:
    def frames() -> Iterator[bytes]:
        for body in bodies:
            yield kafka_frame(key, version, body)

    return frames


def _empty_keys(count: int) -> bytes:
    return b"\0" + compact(count) + b"\1" * count + b"\0"


def _unknown_topics(count: int, *, create: bool = False) -> bytes:
    names = [text(f"{number:04x}") + b"\0" for number in range(count)]
    return b"".join([compact(count), *names, bytes([create]), b"\0\0\0"])


def _partitions(count: int) -> bytes:
    """ListOffsets of many partitions of one topic."""
    partition = b"\0\0\0\0" + b"\xff" * 12 + b"\0"
    return b"\xff\xff\xff\xff\0" + compact(1) + text(TOPIC) + compact(count) + partition * count + b"\0\0"


def _fetched_groups(count: int) -> bytes:
    """OffsetFetch of all offsets of many groups."""
    return compact(count) + b"".join(text(f"{number:04x}") + b"\0\0" for number in range(count)) + b"\0\0"


def _joined(count: int) -> bytes:
    """JoinGroup with many protocols."""
    head = text("crowd") + struct.pack(">ii", 60_000, 60_000) + text("") + b"\0" + text("consumer")
    return head + compact(count) + b"".join(text(f"{number:04x}") + b"\1\0" for number in range(count)) + b"\0\0"


def _described(count: int) -> bytes:
    """DescribeConfigs of one topic, many times."""
    return compact(count) + (b"\2" + text(TOPIC) + b"\0\0") * count + b"\0\0\0"


def _created(count: int) -> bytes:
    """CreateTopics with names that no topic may have."""
    each = b"".join(text(f"?{number:04x}") + b"\0\0\0\1\0\1\1\1\0" for number in range(count))
    return compact(count) + each + b"\0\0\x75\x30\0\0"


def _words(count: int) -> bytes:
    """ListGroups with words that are the states of no group."""
    return compact(count) + b"".join(text(f"{number:04x}") for number in range(count)) + b"\0"


def _tagged(count: int) -> bytes:
    """A Heartbeat with unknown tagged fields."""
    return text("g") + b"\0\0\0\1" + text("m") + b"\0" + compact(count - 1) + b"\5\0" * count


def _tagged_produce(count: int) -> bytes:
    return produce_body({})[:-1] + compact(count - 1) + b"\5\0" * count


def _null_batches(count: int) -> bytes:
    """Produce with many partitions without records."""
    partition = b"\0\0\0\0\0\0"
    return b"\0\xff\xff\0\0\x75\x30" + compact(1) + text(TOPIC) + compact(count) + partition * count + b"\0\0"


def bombs() -> Iterator[bytes]:
    """Batches of a few KiB that decompress to 30 MiB each, for a topic that compresses them again."""
    yield _to_recompress(bytes(BOMB_BYTES), GZIP_PARTITIONS)


def _lasting_bombs() -> Iterator[bytes]:
    """Batches that only a codec with a large window makes small; gzip makes 60 MiB of each, if it is not stopped."""
    block = random.Random(1).randbytes(400 << 10)
    yield _to_recompress(block * (2 * BOMB_BYTES // len(block)), LASTING_BOMBS)


def _to_recompress(value: bytes, count: int) -> bytes:
    batch = build_batch([Record(value=value)], base_timestamp=1, compression=Codec.ZSTD)
    return kafka_frame(0, 9, produce_body({GZIP_TOPIC: [batch] * count}))


def _terms(name: str, value: bytes, count: int = 1, codec: Codec = Codec.NONE) -> Iterator[bytes]:
    """Batches of `count` records with one header each, for as many partitions, to a topic that takes conditions."""
    records = [Record(offset_delta=number, headers=((name, value),)) for number in range(count)]
    batch = build_batch(records, base_timestamp=1, compression=codec)
    yield kafka_frame(0, 9, produce_body({CONDITIONAL_TOPIC: [batch] * CONDITIONAL_PARTITIONS}))


def _conditional_bombs(value: bytes) -> Iterator[bytes]:
    """Batches of a few KiB that decompress to 30 MiB each, to a topic that takes conditions."""
    batch = build_batch([Record(value=value)], base_timestamp=1, compression=Codec.ZSTD)
    yield kafka_frame(0, 9, produce_body({CONDITIONAL_TOPIC: [batch] * CONDITIONAL_PARTITIONS}))


def _near_names() -> Iterator[bytes]:
    """Batches whose values nearly have the name of a term, all along."""
    batch = build_batch([Record(value=b"gnomon.expected.offse" * 40_000)], base_timestamp=1)
    yield kafka_frame(0, 9, produce_body({CONDITIONAL_TOPIC: [batch] * CONDITIONAL_PARTITIONS}))


def _fences(count: int) -> Iterator[bytes]:
    """Native calls that give a partition one token after the other, in one go."""
    yield b"".join(rpc.encode([rpc.HELLO, rpc.MAGIC, [1], "broker", None]))
    calls = [[rpc.CALL, at, "fence", [CONDITIONAL_TOPIC, 0, b"%036d" % at, None, None]] for at in range(count)]
    yield from _in_one_go(b"".join(rpc.encode(call)) for call in calls)


def _table_calls(kind: int, method: str, count: int, *args: Any) -> Iterator[bytes]:
    """As many native calls on the table, in one go; an argument that is a function gets the number of the call."""
    yield b"".join(rpc.encode([rpc.HELLO, rpc.MAGIC, [1], "broker", None]))
    yield from _in_one_go(_calls_on(TABLE_TOPIC, kind, method, range(count), *args))


def _calls_on(table: str, kind: int, method: str, numbers: Iterable[int], *args: Any) -> Iterator[bytes]:
    """One call with each number."""
    for at in numbers:
        given = [arg(at) if callable(arg) else arg for arg in args]
        yield b"".join(rpc.encode([kind, at, method, [table, TABLE_IDS[table], 0, *given]]))


def _watched_transactions() -> Iterator[bytes]:
    """Watches of one key each, and then transactions that put half of these keys, and as many others."""
    yield b"".join(rpc.encode([rpc.HELLO, rpc.MAGIC, [1], "broker", None]))
    key: Callable[[int], bytes] = lambda at: b"key %05d" % at  # noqa: E731
    yield from _in_one_go(_calls_on(WATCHED_TOPIC, rpc.OPEN, "table_watch", range(WATCHES), key, 0))
    puts = [["put", key(at), b"v", 0] for at in range(WATCHES // 2, WATCHES // 2 + 1_000)]
    number: Callable[[int], int] = lambda at: at  # noqa: E731
    writes = range(WATCHES, WATCHES + 10)
    args = (b"w" * 16, number, 0, [], puts, [])
    yield from _in_one_go(_calls_on(WATCHED_TOPIC, rpc.CALL, "table_write", writes, *args))
    yield from [b""] * (WATCHES // 2 * len(writes))  # the changes


def _wide_transactions() -> Iterator[bytes]:
    """Transactions that put and compare as much as one may."""
    comparisons = [[b"key %05d" % number, "version", ">", -1] for number in range(500)]
    puts = [["put", b"key %05d" % number, b"v" * 100, 0] for number in range(500)]
    number: Callable[[int], int] = lambda at: at  # noqa: E731
    return _table_calls(rpc.CALL, "table_write", 50, b"w" * 16, number, 0, comparisons, puts, [])


def _many_keys(topic: str) -> Iterator[bytes]:
    """Batches of 10,000 small records for a table, in one go."""
    records = [Record(delta, 0, b"key %05d" % delta, b"v") for delta in range(10_000)]
    batch = build_batch(records, base_timestamp=1, compression=Codec.ZSTD)
    return _in_one_go([kafka_frame(0, 9, produce_body({topic: [batch]}))] * 10)


def _in_one_go(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Requests that are sent without a wait for the answers in between."""
    joined = list(frames)
    yield b"".join(joined)
    yield from [b""] * (len(joined) - 1)  # the other answers


def _small_batches(topic: str, records: Sequence[Record], count: int) -> Iterator[bytes]:
    """As many requests with a small compressed batch each."""
    batch = build_batch(records, base_timestamp=1, compression=Codec.ZSTD)
    return _in_one_go([kafka_frame(0, 9, produce_body({topic: [batch]}))] * count)


def _small_bombs(topic: str) -> Iterator[bytes]:
    """Batches of some 100 bytes that decompress to as much as is done within a turn."""
    return _small_batches(topic, [Record(value=bytes(AT_ONCE_BYTES_MAX - 100))], 500)


def _many_terms() -> Iterator[bytes]:
    """Batches of 1 KB or less with as many terms as are read within a turn."""
    header = ("gnomon.expected.offset", b"7")
    return _small_batches(
        CONDITIONAL_TOPIC, [Record(offset_delta=at, headers=(header,)) for at in range(RECORDS_AT_ONCE_MAX)], 200
    )


def _large_batches(count: int) -> Iterator[bytes]:
    """Batches of 1 MB for as many partitions."""
    batch = build_batch([Record(value=random.Random(1).randbytes(1_000_000))], base_timestamp=1)
    yield kafka_frame(0, 9, produce_body({WIDE_TOPIC: [batch] * count}))


def _by_time(timestamp: int) -> bytes:
    """ListOffsets by a time (or by a number that stands for one) in TIMED_TOPIC."""
    partition = struct.pack(">iiq", 0, -1, timestamp) + b"\0"
    return b"\xff\xff\xff\xff\0" + compact(1) + text(TIMED_TOPIC) + compact(1) + partition + b"\0\0"


def _polled(topics: Mapping[str, int]) -> bytes:
    """Fetch of so many partitions of each topic."""
    polled = [
        FetchTopic(
            topic=name,
            partitions=[
                FetchPartition(partition=index % WIDE_PARTITIONS, partition_max_bytes=1) for index in range(count)
            ],
        )
        for name, count in topics.items()
    ]
    return encode(FetchRequest(replica_id=-1, max_bytes=1 << 20, session_epoch=-1, topics=polled), 12)


def _planned(hold: str) -> object:
    ranges = [[index, 0, 1 << 40] for index in range(WIDE_PARTITIONS)]
    return [rpc.CALL, 1, "plan", [WIDE_TOPIC, ranges, hold, 600]]


def _heads(*values: object, hello: bool = True) -> Callable[[], Iterator[bytes]]:
    def frames() -> Iterator[bytes]:
        if hello:
            yield b"".join(rpc.encode([rpc.HELLO, rpc.MAGIC, [1], "broker", None]))
        for value in values:
            packed = msgpack.packb(value)
            yield struct.pack(">II", len(packed) + 4, len(packed)) + packed

    return frames


def _widest() -> Iterator[Attack]:
    for name, key, version, body in widest(WIDE_TOPIC, WIDE_PARTITIONS):
        yield Attack(name, _kafka(key, version, body), 2)


ATTACKS = (
    *_widest(),
    Attack("FindCoordinator, 8 million empty keys", _kafka(10, 4, _empty_keys(BODY_BYTES))),
    Attack("FindCoordinator, 8 million empty keys, five times", _kafka(10, 4, _empty_keys(BODY_BYTES)), 5),
    Attack("FindCoordinator, 10,000 keys", _kafka(10, 4, _empty_keys(10_000)), 5),
    Attack("ListOffsets, 490,000 partitions", _kafka(2, 7, _partitions(490_000)), 6),
    Attack("ListOffsets, 19,900 partitions", _kafka(2, 7, _partitions(19_900)), 6),
    Attack("Metadata, 1 million names", _kafka(3, 9, _unknown_topics(1_000_000))),
    Attack("Metadata, 9,900 names", _kafka(3, 9, _unknown_topics(9_900)), 5),
    Attack("Metadata, 9,900 topics to create", _kafka(3, 9, _unknown_topics(9_900, create=True)), 5),
    Attack("OffsetFetch, 5,000 groups", _kafka(9, 8, _fetched_groups(5_000)), 5),
    Attack("JoinGroup, 500,000 protocols", _kafka(11, 7, _joined(500_000))),
    Attack("JoinGroup, 9,000 protocols", _kafka(11, 7, _joined(9_000))),
    Attack("DescribeConfigs, 9,900 times one topic", _kafka(32, 4, _described(9_900)), 2),
    Attack("CreateTopics, 3,000 bad names", _kafka(19, 5, _created(3_000)), 2),
    Attack("ListGroups, 900 words, for 1,500 groups", _kafka(16, 4, _words(900)), 5),
    Attack("ListGroups, 9,900 words, for 1,500 groups", _kafka(16, 4, _words(9_900)), 5),
    Attack("Heartbeat, 4 million tagged fields", _kafka(12, 4, _tagged(4_000_000))),
    Attack("Produce, 10 million tagged fields", _kafka(0, 9, _tagged_produce(10_000_000))),
    Attack("Produce, 3,900 partitions without records", _kafka(0, 9, _null_batches(3_900)), 2),
    Attack("Produce, 25 batches of 1 MB", partial(_large_batches, 25)),
    Attack("Fetch, 4,900 topics", _kafka(1, 12, _polled({f"{number:04x}": 1 for number in range(4_900)})), 2),
    Attack("Fetch, 9,900 partitions", _kafka(1, 12, _polled({WIDE_TOPIC: 9_900})), 2),
    Attack("Produce, bombs of zstd to a topic of gzip", bombs, 2),
    Attack("Produce, bombs of zstd that gzip does not compress", _lasting_bombs, 2),
    Attack("Produce, expected offset in 20 × 20,000 records", partial(_terms, "gnomon.expected.offset", b"1", 20_000)),
    Attack("the same, compressed", partial(_terms, "gnomon.expected.offset", b"1", 20_000, Codec.ZSTD), 2),
    Attack("Produce, expected offsets of 300,000 digits", partial(_terms, "gnomon.expected.offset", b"1" * 300_000), 2),
    Attack("Produce, tokens of 300,000 bytes", partial(_terms, "gnomon.fencing.token", b"t" * 300_000), 2),
    Attack("Produce, bombs to a topic that takes conditions", partial(_conditional_bombs, bytes(BOMB_BYTES)), 2),
    Attack(
        "the same, full of the name of a term",
        partial(_conditional_bombs, b"gnomon.transaction.id" * (BOMB_BYTES // 21)),
        2,
    ),
    Attack("Produce, values that are nearly names of terms", _near_names, 2),
    Attack("500 Produce in one go, small bombs to a topic of gzip", partial(_small_bombs, HEALTHY_GZIP_TOPIC), 2),
    Attack("the same, to a topic that takes conditions", partial(_small_bombs, CONDITIONAL_TOPIC), 2),
    Attack("200 Produce in one go, small batches full of terms", _many_terms, 2),
    Attack("ListOffsets by time in 100,000 records", _kafka(2, 7, *[_by_time(TIMED_MS)] * 4), 5),
    Attack("ListOffsets by the largest time in 100,000 records", _kafka(2, 7, *[_by_time(-3)] * 4), 5),
    Attack("HELLO of 60 MiB", _heads([rpc.HELLO, rpc.MAGIC, [1], "s" * (60 << 20), None], hello=False), native=True),
    Attack("call with 100 million empty lists", _heads([rpc.CALL, 1, "ack", [[]] * (100 << 20)]), native=True),
    Attack("call with 2 million empty lists", _heads([rpc.CALL, 1, "ack", [[]] * 2_000_000]), native=True),
    Attack("calls of a method with a long name", _heads(*[[rpc.CALL, 1, "m" * 900_000, []]] * 2), 5, native=True),
    Attack("call with 49,000 empty lists", _heads([rpc.CALL, 1, "ack", [[]] * 49_000]), 5, native=True),
    Attack("plan of 500 partitions with a hold", _heads(_planned("held")), 5, native=True),
    Attack("4,000 fences", partial(_fences, 4_000), 2, native=True),
    Attack("plan of 500 partitions", _heads(_planned("")), 5, native=True),
    Attack("50 transactions of 1,000 parts in one go", _wide_transactions, 2, native=True),
    Attack("Produce, 10 batches of 10,000 keys to a table", partial(_many_keys, TABLE_TOPIC), 2),
    Attack("the same, to a table on disk", partial(_many_keys, DISK_TABLE_TOPIC), 2),
    Attack(
        "100 scans of 10,000 entries in one go",
        partial(_table_calls, rpc.CALL, "table_scan", 100, b"", None, 10_000, False, False),
        2,
        native=True,
    ),
    Attack(
        "10,000 gets in one go",
        partial(_table_calls, rpc.CALL, "table_get", 10_000, b"key 00001", False),
        2,
        native=True,
    ),
    Attack("10 transactions of 1,000 puts beside 1,000 watches", _watched_transactions, native=True),
    Attack("1,000 watches in one go", partial(_table_calls, rpc.OPEN, "table_watch", 1_000, b"key", 0), 2, native=True),
)
