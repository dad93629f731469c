"""Stored and sent bytes do not change: each format is compared with the file of its name beside this module.

A file holds samples, `name: hex` a line. Each is encoded and compared byte for byte, then decoded and compared with the
value. A change that makes a test here fail changes a format: see docs/formats.md for what else goes with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgpack
import pytest

from gnomon.bookie import entry as ledger_entries
from gnomon.bookie.digest import MAC_BYTES, Mac, password_digest, secret_of
from gnomon.bookie.ids import BookieId, EntryId, LedgerId, SessionId
from gnomon.bookie.record import DigestType, Fragment, LedgerRecord, LedgerState, Quorum
from gnomon.bookie.record import decode_record as decode_ledger
from gnomon.bookie.registry import BookieRegistration
from gnomon.bookie.storage import removal
from gnomon.broker.groups.records import GroupRecord, OffsetRecord, StoredOffset
from gnomon.broker.groups.records import decode_record as decode_group
from gnomon.broker.partition.producers import Producers
from gnomon.broker.placement.leadership import LiveBroker
from gnomon.broker.subscriptions.positions.record import SubscriberRecord, decode_commit, encode_commit
from gnomon.broker.subscriptions.positions.store import Position
from gnomon.broker.tables.recent_operations import DoneOperation
from gnomon.broker.tables.stored import store_forms
from gnomon.broker.tables.stored.store_forms import TablePosition
from gnomon.client.kafka.topic_partition import TopicPartition
from gnomon.log import entry as partition_entries
from gnomon.log import segment_record
from gnomon.log.cut import Cut
from gnomon.log.dlsn import CommitPoint, Dlsn
from gnomon.log.entry import NO_ABORT, EntryHeader, EntryKind, LeaderEpoch, Offset
from gnomon.log.plans.read_hold import HoldPlace, ReadHold
from gnomon.log.plans.read_plan import (
    PlannedBookie,
    PlannedPartition,
    PlannedSegment,
    ReadPlan,
    decode_plan,
    encode_plan,
)
from gnomon.log.sn import SN
from gnomon.log.tables.export_form import ExportedPartition, ExportHead, ExportReader, ExportWriter
from gnomon.log.tables.key_entry import NEVER, pack_entry
from gnomon.log.tables.operation_id import OperationId
from gnomon.log.tables.snapshot_form import SnapshotRecord, decode_part, encode_entries, encode_operations
from gnomon.log.tables.table_digest import TableDigest
from gnomon.log.topic import SourceRef, Topic, topic_key
from gnomon.metadata import records as metadata_records
from gnomon.metadata.client import Event, KeyValue, LeaseId, Revision, WatchBatch
from gnomon.metadata.records import META
from gnomon.metadata.sealed import seal, unseal
from gnomon.runtime.disk.data_directory import FORMAT, DirectoryKind, check_format
from gnomon.runtime.settings.endpoint import Endpoint
from gnomon.spark.decisions import Proposal, ProposedBatches, StagedBatch
from gnomon.wire import rpc
from gnomon.wire.kafka.messages.offsets_topic import GroupMetadataValue, MemberMetadata

FILES = Path(__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "formats.md"


class Sample(NamedTuple):
    """One value of a format."""

    value: Any
    encoded: bytes
    decode: Callable[[bytes], Any]


def entry_header() -> dict[str, Sample]:
    fields = (LeaderEpoch(3), Offset(100), Offset(104), Offset(104), 1_700_000_000_000, 7, NO_ABORT)
    headers = {
        "batch": EntryHeader(EntryKind.BATCH, *fields),
        "producers": EntryHeader(EntryKind.PRODUCERS, LeaderEpoch(0), Offset(5), Offset(5), Offset(5), -1, 0, NO_ABORT),
        "batch with a transaction id": EntryHeader(EntryKind.BATCH, *fields, transaction_id=4096),
    }
    return {
        name: Sample(
            header,
            partition_entries.pack_header(*header[:-1])
            if header.transaction_id < 0
            else partition_entries.pack_transaction_header(*header),
            lambda data: partition_entries.unpack_header(memoryview(data)),
        )
        for name, header in headers.items()
    }


def ledger_entry() -> dict[str, Sample]:
    ledger, entry, session, payload = LedgerId(7), EntryId(3), SessionId(2), b"payload"
    mac = Mac(ledger, secret_of(b"password"))

    def decoded(data: bytes) -> Any:
        found = ledger_entries.decode_entry(ledger, entry, memoryview(data))
        return found.session, found.last_add_confirmed, found.length_bytes, bytes(found.payload)

    def opened(data: bytes) -> Any:
        found = ledger_entries.decode_entry(ledger, entry, memoryview(data))
        return bytes(mac.open(entry, found.payload))

    plain = ledger_entries.encode_entry(ledger, entry, session, EntryId(2), 100, [payload])
    sealed = ledger_entries.encode_entry(
        ledger, entry, session, EntryId(2), 100 + MAC_BYTES, mac.seal(entry, [payload])
    )
    return {
        "crc32c": Sample((session, 2, 100, payload), plain, decoded),
        "mac": Sample(payload, sealed, opened),
    }


def ledger_record() -> dict[str, Sample]:
    one, two, three = map(BookieId, ("bookie-1", "bookie-2", "bookie-3"))
    fragments = (
        Fragment(EntryId(0), SessionId(1), (one, two, three)),
        Fragment(EntryId(40), SessionId(4), (one, two, three)),
    )
    records = {
        "open": LedgerRecord(Quorum(3, 3, 2), fragments, SessionId(4), start_entry=EntryId(10), length_bytes=2048),
        "sealed": LedgerRecord(
            Quorum(3, 3, 2),
            fragments,
            SessionId(4),
            LedgerState.SEALED,
            EntryId(10),
            EntryId(99),
            4096,
            DigestType.MAC,
            password_digest("audit", secret_of(b"password")),
            {"owner": "me"},
        ),
    }
    return {name: Sample(record, record.encode(), decode_ledger) for name, record in records.items()}


def segment() -> dict[str, Sample]:
    properties = {
        "written": {segment_record.EPOCH: 2, segment_record.CREATED_MS: 1_700_000_000_000},
        "sealed": {
            segment_record.EPOCH: 2,
            segment_record.CREATED_MS: 1_700_000_000_000,
            segment_record.START_OFFSET: 120,
            segment_record.NEXT_OFFSET: 500,
            segment_record.MAX_TIMESTAMP: 1_700_000_001_000,
            segment_record.YOUNGEST_MS: 1_700_000_001_000,
            segment_record.BATCHES_BYTES: 9000,
        },
        "begun after a roll": {
            segment_record.EPOCH: 2,
            segment_record.CREATED_MS: 1_700_000_000_000,
            segment_record.LAST_RECORD: SN(Dlsn(100, 7, 2), -1, 119).encode(),
        },
    }
    fragments = (Fragment(EntryId(0), SessionId(1), (BookieId("local"),)),)
    samples = {
        name: Sample(record := LedgerRecord(Quorum(), fragments, properties=given), record.encode(), decode_ledger)
        for name, given in properties.items()
    }
    for name, cleaning in (("name", 0), ("name of a cleaned one", 2)):
        value = segment_record.SegmentName(Offset(120), cleaning)
        encoded = segment_record.segment_name("topics/00000000000000000000000000000007/3/", *value).encode()
        samples[name] = Sample(value, encoded, lambda data: segment_record.parse_segment_name(data.decode()))
    return samples


def topic() -> dict[str, Sample]:
    number = UUID(int=7)
    topics = {
        "plain": Topic("orders", number, 3, {"retention.ms": "60000"}, Revision(5), 1),
        "two copies": Topic("orders", number, 3, {}, Revision(5), 1, copies=2),
        "shadow": Topic("copy", number, 0, {}, Revision(5), 1, SourceRef("orders", UUID(int=9), 2)),
    }

    def decode(data: bytes, name: str) -> Topic:
        return Topic.decode(KeyValue(topic_key(name), data, Revision(5), Revision(6), 1))

    return {
        name: Sample(value, value.encode(), lambda data, name=value.name: decode(data, name))
        for name, value in topics.items()
    }


def subscription() -> dict[str, Sample]:
    position = Position(CommitPoint(120, 4, 2, 129), ((Offset(130), Offset(132)), (Offset(140), Offset(141))))
    records = {
        "new": SubscriberRecord("reader", Position()),
        "with a segment": SubscriberRecord("reader", position, 3, resets=2),
    }
    samples = {name: Sample(record, record.encode(), SubscriberRecord.decode) for name, record in records.items()}
    return {**samples, "segment entry": Sample(position, encode_commit(position), decode_commit)}


def group() -> dict[str, Sample]:
    member = MemberMetadata(
        member_id="member-1",
        group_instance_id=None,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout=60_000,
        session_timeout=45_000,
        subscription=b"subscription",
        assignment=b"assignment",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="member-1",
        current_state_timestamp=1_700_000_000_000,
        members=[member],
    )
    records = {
        "offset": OffsetRecord("billing", "orders", 3, StoredOffset(41, 2, "note", 1_700_000_000_000)),
        "expiring offset": OffsetRecord(
            "billing", "orders", 3, StoredOffset(41, -1, "", 1_700_000_000_000, 1_700_000_060_000)
        ),
        "generation": GroupRecord("billing", value),
    }
    samples = {}
    for name, record in records.items():
        key, stored = record.encoded()
        assert stored is not None
        samples[f"{name} key"] = Sample(decode_group(key, None), key, lambda data: decode_group(data, None))
        samples[f"{name} value"] = Sample(record, stored, lambda data, key=key: decode_group(key, data))
    return samples


def producers() -> dict[str, Sample]:
    known = Producers()
    known.record(7, 1, 0, 3, Offset(100), 4, 1_700_000_000_000, 1_600_000_000_000)
    known.record(7, 1, 4, 5, Offset(104), 2, 1_700_000_000_500)
    known.record(8, 0, 9, 9, Offset(106), 1, 1_700_000_000_900)

    def decode(data: bytes) -> bytes:
        restored = Producers()
        return restored.encode_snapshot(*restored.restore_snapshot(data))

    encoded, fenced = known.encode_snapshot(70), Producers().encode_snapshot(0, b"writer-7")
    return {"two producers": Sample(encoded, encoded, decode), "a token": Sample(fenced, fenced, decode)}


def cut() -> dict[str, Sample]:
    value = Cut(120, 4, 2, Offset(131))
    return {"cut": Sample(value, value.encode(), Cut.decode)}


def registration() -> dict[str, Sample]:
    bookie = BookieRegistration("10.0.0.1", 3181, Revision(5), "rack-1", read_only=True)
    broker = LiveBroker(2, "10.0.0.2", 9092, "rack-1", False, 6.0, 6650)
    inside, outside = Endpoint("INSIDE", "10.0.0.2", 9092), Endpoint("OUTSIDE", "public.example", 32000)
    listeners = replace(broker, listeners=(inside, outside), native_host="public.example")
    return {
        "bookie": Sample(bookie, bookie.encode(), BookieRegistration.decode),
        "broker": Sample(broker, broker.encode(), lambda data: LiveBroker.decode(2, data)),
        "broker with two listeners": Sample(listeners, listeners.encode(), lambda data: LiveBroker.decode(2, data)),
    }


def bookie_store() -> dict[str, Sample]:
    ledger = LedgerId(7)

    def key_of(kind: bytes) -> Sample:
        return Sample(
            (kind, ledger), removal.state_key(kind, ledger), lambda data: (data[:1], *removal.NUMBER.unpack(data[1:]))
        )

    def stored(kind: bytes, value: bytes) -> bytes:
        class Transaction:
            def put(self, key: bytes, value: bytes, db: object) -> None:
                self.value = value

        transaction = Transaction()
        removal.put_state(transaction, None, kind, ledger, value)
        return transaction.value

    pair, number = removal.ENTRY_KEY, removal.NUMBER
    return {
        "entry key": Sample((7, 3), pair.pack(ledger, 3), pair.unpack),
        "promised key": key_of(removal.PROMISED),
        "bound key": key_of(removal.BOUND),
        "going key": key_of(removal.GOING),
        "bound": Sample((4, 40), stored(removal.BOUND, pair.pack(4, 40)), pair.unpack_from),
        "promised": Sample((4,), stored(removal.PROMISED, number.pack(4)), number.unpack_from),
    }


def metadata_store() -> dict[str, Sample]:
    item = KeyValue("topics/public/default/orders", b"value", Revision(5), Revision(9), 2, LeaseId(3))
    batch = WatchBatch(Revision(9), (Event(item.key, item), Event("gone", None)))
    key, value = metadata_records.encode_key_value(item)
    _, format_key, form = metadata_records.format_write()
    _, store_key, store = metadata_records.store_write(Revision(9), Revision(2), LeaseId(4))
    assert form is not None
    assert store is not None

    def read_store(data: bytes) -> Any:
        found = metadata_records.snapshot([], [], [(store_key, data)])
        return found.revision, found.compacted, found.next_lease

    return {
        "key and value": Sample(item, value, lambda data: metadata_records.decode_key_value(key, data)),
        "history": Sample(
            batch,
            metadata_records.encode_batch(batch),
            lambda data: metadata_records.decode_batch(metadata_records.batch_key(Revision(9)), data),
        ),
        "format": Sample(None, form, metadata_records.check_format),
        "format key": Sample(format_key, format_key, bytes),
        "store": Sample((9, 2, 4), store, read_store),
        "sealed store": Sample(store, seal(META, store_key, store), lambda data: unseal(META, store_key, data)),
    }


def read_hold() -> dict[str, Sample]:
    hold = ReadHold(Offset(1200), 600)
    place = HoldPlace(UUID(int=7), 3, "nightly-job")
    return {
        "hold": Sample(hold, hold.encode(), ReadHold.decode),
        "key": Sample(place, place.key.encode(), lambda data: HoldPlace.of_key(data.decode())),
    }


def read_plan() -> dict[str, Sample]:
    names = (BookieId("bookie-1"), BookieId("bookie-2"))
    record = LedgerRecord(Quorum(2, 2, 1), (Fragment(EntryId(0), SessionId(1), names),), properties={"epoch": 0})
    segment = PlannedSegment(Offset(100), LedgerId(7), record, EntryId(2), EntryId(5), Offset(140), 4096)
    plan = ReadPlan(
        UUID(int=7),
        "cluster-id",
        {3: PlannedPartition(Offset(90), Offset(150), (segment,))},
        (PlannedBookie(names[0], "10.0.0.1", 4001, 12),),
    )
    return {"plan": Sample(plan, msgpack.packb(encode_plan(plan)), lambda data: decode_plan(msgpack.unpackb(data)))}


def sink_proposal() -> dict[str, Sample]:
    orders = TopicPartition("orders", 1)
    batches = ProposedBatches((StagedBatch(orders, 2, 40, 100, 0xDEADBEEF),), {orders: 500})
    proposal = Proposal(7, 81, "query", 3, True, 1000, {2: 40}, {1: 9, 2: 41}, {"earlier": 5}, batches.encode())
    return {
        "proposal": Sample(proposal, proposal.encode(), Proposal.decode),
        "content": Sample(batches, batches.encode(), ProposedBatches.decode),
    }


def table_snapshot() -> dict[str, Sample]:
    record = SnapshotRecord("tables/07/0/41", 41, b"identity", 2, 12, bytes(range(32)), 1_700_000_000_000)
    entries = [(b"a", pack_entry(b"1", 40, 12, 3, NEVER)), (b"b", pack_entry(b"2", 41, 41, 1, 1_700_000_060_000))]
    done = [[b"w" * 16, 7, 5, 41, 42, 1_700_000_000_000, True]]
    return {
        "record": Sample(record, record.encode(), SnapshotRecord.decode),
        "entries": Sample((entries, []), encode_entries(entries), decode_part),
        "operations": Sample(([], done), encode_operations(done), decode_part),
    }


def table_export() -> dict[str, Sample]:
    entries = [(b"a", pack_entry(b"1", 40, 12, 3, NEVER)), (b"b", pack_entry(b"2", 41, 41, 1, 1_700_000_060_000))]
    digests = [TableDigest(), TableDigest()]
    digests[0].add(entries)
    head = ExportHead("settings", 2, 1_700_000_000_000)
    partitions = [
        ExportedPartition(index, revision, digest.keys, digest.bytes_used, digest.digest())
        for index, (revision, digest) in enumerate(zip((41, -1), digests, strict=True))
    ]

    def decoded(data: bytes) -> list[Any]:
        reader = ExportReader()
        found = list(reader.feed(data))
        reader.close()
        return found

    writer = ExportWriter()
    written = [writer.begin(head), writer.partition(partitions[0]), writer.entries(encode_entries(entries))]
    written += [writer.partition(partitions[1]), writer.end()]
    return {"file": Sample([head, partitions[0], entries, partitions[1]], b"".join(written), decoded)}


def table_store() -> dict[str, Sample]:
    position = TablePosition(Offset(42), b"identity", 2, 12)
    key = store_forms.partition_key(UUID(int=7), 3)
    table = store_forms.encode_table(9, position)
    done = DoneOperation(Offset(41), Offset(42), 1_700_000_000_000, True, None)
    operation = OperationId(b"w" * 16, 7, 5, True)
    row = store_forms.operation_row(9, operation.writer, operation.number)
    return {
        "partition": Sample(UUID(int=7), key, store_forms.topic_of),
        "table": Sample((9, position), table, store_forms.decode_table),
        "sealed": Sample(table, store_forms.seal(key, table), lambda data: store_forms.unseal(key, data)),
        "discarded": Sample(9, store_forms.discarded_key(9), store_forms.number_of),
        "expiry": Sample((5, b"k"), store_forms.expiry_row(9, 5, b"k"), store_forms.expiry_of),
        "operation": Sample(
            (operation, done), store_forms.encode_done(5, done), lambda data: store_forms.decode_done(row, data)
        ),
    }


def rpc_frame() -> dict[str, Sample]:
    heads: dict[str, tuple[list[Any], bytes]] = {
        "hello": ([rpc.HELLO, rpc.MAGIC, list(rpc.VERSIONS), "bookie bookie-1", "cluster-id"], b""),
        "welcome": ([rpc.WELCOME, 1, "cluster-id"], b""),
        "refused": ([rpc.REFUSED, "the peer is of another cluster"], b""),
        "call": ([rpc.CALL, 5, "add", [7, 3, 2]], b"entry"),
        "result": ([rpc.RESULT, 5, [3]], b""),
        "error": ([rpc.ERROR, 5, "Fenced", [7, 2, 4], "session 2 of ledger 7 is fenced"], b""),
        "item": ([rpc.ITEM, 6, [1, 2]], b""),
        "end": ([rpc.END, 6], b""),
        "more": ([rpc.MORE, 6, 4096], b""),
        "cancel": ([rpc.CANCEL, 6], b""),
        "tell": ([rpc.TELL, "confirm", [7, 2, 3]], b""),
        "ping": ([rpc.PING], b""),
        "pong": ([rpc.PONG], b""),
        "open": ([rpc.OPEN, 6, "watch", ["topics/", 9]], b""),
    }

    def decode(data: bytes) -> Any:
        head, attachment = rpc.decode(memoryview(data)[4:])
        return head, bytes(attachment)

    return {
        name: Sample((head, attachment), b"".join(rpc.encode(head, attachment)), decode)
        for name, (head, attachment) in heads.items()
    }


def data_directory() -> dict[str, Sample]:
    return {
        kind.value: Sample(
            None,
            f"{FORMAT} {kind.value}\n".encode(),
            lambda data, kind=kind: check_format(Path("data"), data, kind),
        )
        for kind in DirectoryKind
    }


FORMATS: dict[str, Callable[[], dict[str, Sample]]] = {
    made.__name__: made
    for made in (
        *(entry_header, ledger_entry, ledger_record, segment, topic, subscription, group, producers, cut, read_hold),
        *(registration, bookie_store, metadata_store, rpc_frame, read_plan, data_directory, sink_proposal),
        *(table_snapshot, table_export, table_store),
    )
}


def golden(name: str) -> dict[str, bytes]:
    lines = (FILES / f"{name}.txt").read_text().splitlines()
    return {label: bytes.fromhex(data) for label, data in (line.split(": ") for line in lines)}


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_written_and_read_byte_for_byte_as_in_its_golden_file(name: str) -> None:
    samples = FORMATS[name]()
    written = "\n".join(f"{label}: {sample.encoded.hex()}" for label, sample in samples.items())
    assert {label: sample.encoded for label, sample in samples.items()} == golden(name), f"now:\n{written}"
    for label, sample in samples.items():
        assert sample.decode(golden(name)[label]) == sample.value, label


def test_each_format_has_a_golden_file_and_a_section_of_the_page_that_names_it() -> None:
    assert {path.stem for path in FILES.glob("*.txt")} == set(FORMATS)
    assert set(re.findall(r"golden/(\w+)\.txt", PAGE.read_text())) == set(FORMATS)
