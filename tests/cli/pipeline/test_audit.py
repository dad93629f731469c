"""`gnomon pipeline audit` on a real cluster whose copies are changed and removed on the disks of its bookies."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest
from confluent_kafka import Producer

from gnomon.bookie.storage.entry_store import DATABASES, ENTRIES
from gnomon.bookie.storage.removal import ENTRY_KEY
from gnomon.testing import KafkaBroker
from gnomon.testing.kafka_cluster import KafkaCluster

Run = Callable[..., "subprocess.CompletedProcess[str]"]
MAP_BYTES = 1 << 30
ENTRY_BYTES = 8
"""Of the number of an entry, with which its key ends."""


class Audited:
    """A cluster, and the command that audits it."""

    def __init__(self, cluster: KafkaCluster, inside: Run) -> None:
        self.cluster = cluster
        self._inside = inside

    def gnomon(self, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        return self._inside(*arguments, GNOMON_BOOTSTRAP_SERVER=self.cluster.bootstrap_servers, **options)

    def audit(self, *topics: str) -> tuple[int, dict[str, Any]]:
        """The exit code and the report."""
        done = self.gnomon(
            "pipeline", "audit", *topics, "--metadata", self.cluster.metadata_address, "--output", "json"
        )
        return done.returncode, json.loads(done.stdout)

    def write(self, topic: str, entries: int, partition: int = 0) -> None:
        """Writes three records an entry."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "linger.ms": 100, "log_level": 0})
        for number in range(entries):
            for record in range(3):
                producer.produce(topic, f"record {number} {record}".encode(), partition=partition)
            assert producer.flush(30) == 0

    def ledger(self, topic: str, partition: int = 0) -> dict[str, Any]:
        """The only ledger of a partition, as `gnomon ledger list` shows it."""
        rows = json.loads(self.gnomon("topic", "list", "--output", "json").stdout)
        topic_id = base64.urlsafe_b64decode(next(row["id"] for row in rows if row["topic"] == topic) + "==").hex()
        at = ("--metadata", self.cluster.metadata_address, "--output", "json")
        (row,) = json.loads(self.gnomon("ledger", "list", f"topics/{topic_id}/{partition}/", *at).stdout)
        found: dict[str, Any] = row
        return found

    def on_disk(self, bookie: str, change: Callable[[Any], None]) -> None:
        """Changes the entries of a stopped bookie, in one transaction."""
        folder = self.cluster.data_dir / bookie / "bookie"
        with lmdb.open(str(folder), map_size=MAP_BYTES, max_dbs=len(DATABASES)) as store:
            database = store.open_db(ENTRIES.encode(), create=False)
            with store.begin(write=True, db=database) as transaction:
                change(transaction)

    def copies(self, ledger_id: int) -> dict[str, dict[bytes, bytes]]:
        """The copies of a ledger on the disks of the stopped bookies: by bookie, the stored bytes by key."""
        found: dict[str, dict[bytes, bytes]] = {}
        prefix = ENTRY_KEY.pack(ledger_id, 0)[:-ENTRY_BYTES]

        def look(bookie: str) -> Callable[[Any], None]:
            return lambda transaction: found.update(
                {bookie: {bytes(key): bytes(value) for key, value in transaction.cursor() if key.startswith(prefix)}}
            )

        for number in range(1, len(self.cluster.bookies) + 1):
            self.on_disk(f"bookie-{number}", look(f"bookie-{number}"))
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(data_dir=tmp_path_factory.mktemp("audited")) as cluster:
        yield cluster


@pytest.fixture
def audited(cluster: KafkaCluster, inside: Run) -> Audited:
    return Audited(cluster, inside)


def test_an_intact_topic_and_its_shadow_have_no_findings_also_while_a_producer_writes(audited: Audited) -> None:
    assert audited.gnomon("topic", "create", "intact", "--partitions", 2).returncode == 0
    assert audited.gnomon("topic", "create-shadow", "intact", "mirror").returncode == 0
    audited.write("intact", 5)
    producer = Producer({"bootstrap.servers": audited.cluster.bootstrap_servers, "linger.ms": 0, "log_level": 0})
    delivered: list[object] = []
    for batch in range(5):
        for number in range(200):
            producer.produce(
                "intact", f"more {number}".encode(), partition=0, on_delivery=lambda error, _: delivered.append(error)
            )
        while len(delivered) <= 200 * batch:  # the audit reads beside the other records of this round
            assert producer.poll(30) > 0
        code, report = audited.audit("intact", "mirror")
        assert (code, report["findings"]) == (0, [])
    assert producer.flush(30) == 0
    assert set(delivered) == {None}
    assert report["entries"] > 5
    assert report["copies"] == 3 * report["entries"]
    assert report["shadows"] == [{"topic": "mirror", "source": "intact"}]


def entry(number: int) -> dict[str, int]:
    return {"first_entry": number, "last_entry": number}


def broken(audited: Audited, topic: str) -> dict[str, Any]:
    """The ledger of a new topic, with a byte of entry 3 changed and entry 5 removed; its cluster is stopped."""
    assert audited.gnomon("topic", "create", topic).returncode == 0
    audited.write(topic, 8)
    ledger = audited.ledger(topic)

    def flip(transaction: Any) -> None:
        key = ENTRY_KEY.pack(ledger["id"], 3)
        value = bytearray(transaction.get(key))
        value[-5] ^= 1
        assert transaction.put(key, bytes(value))

    def remove(transaction: Any) -> None:
        assert transaction.delete(ENTRY_KEY.pack(ledger["id"], 5))

    audited.cluster.stop()
    audited.on_disk("bookie-2", flip)
    audited.on_disk("bookie-3", remove)
    return ledger


def test_a_changed_byte_and_a_removed_copy_on_the_disks_are_named_and_end_the_command_with_1(audited: Audited) -> None:
    ledger = broken(audited, "broken")
    audited.cluster.start()
    code, report = audited.audit("broken")
    assert code == 1
    places = [
        {name: value for name, value in finding.items() if name not in ("finding", "topic", "partition", "ledger")}
        for finding in report["findings"]
    ]
    assert places == [
        {"kind": "damaged", "bookie": "bookie-2", **entry(3), "first_offset": 9, "last_offset": 11},
        {"kind": "missing", "bookie": "bookie-3", **entry(5), "first_offset": 15, "last_offset": 17},
    ]
    assert {(each["topic"], each["partition"], each["ledger"]) for each in report["findings"]} == {
        ("broken", 0, ledger["ledger"])
    }


def test_an_audit_repairs_nothing_and_finds_the_same_again(audited: Audited) -> None:
    ledger = broken(audited, "left-broken")
    before = audited.copies(ledger["id"])
    audited.cluster.start()
    shown = audited.ledger("left-broken")
    reports = [audited.audit("left-broken") for _ in range(2)]
    assert audited.ledger("left-broken") == shown
    audited.cluster.stop()
    after = audited.copies(ledger["id"])
    audited.cluster.start()
    assert reports[0] == reports[1]
    assert [finding["kind"] for finding in reports[0][1]["findings"]] == ["damaged", "missing"]
    assert after == before
    assert {bookie: len(copies) for bookie, copies in after.items()} == {"bookie-1": 8, "bookie-2": 8, "bookie-3": 7}


def test_the_report_in_words_names_each_finding_and_a_dead_bookie_is_one(audited: Audited) -> None:
    assert audited.gnomon("topic", "create", "words", "--partitions", 2).returncode == 0
    audited.write("words", 3, 0)
    audited.write("words", 3, 1)
    audited.cluster.bookies[1].kill()
    try:
        done = audited.gnomon("pipeline", "audit", "words", "--metadata", audited.cluster.metadata_address)
    finally:
        audited.cluster.bookies[1].start()
    assert done.returncode == 1
    assert done.stdout.count("could not be read") == 1
    assert "copies at bookie bookie-2 could not be read" in done.stdout
    assert done.stderr.startswith("Error: 1 finding: copies at bookie bookie-2 could not be read")


def test_a_missing_topic_ends_the_command_with_5(audited: Audited) -> None:
    done = audited.gnomon("pipeline", "audit", "nowhere", "--metadata", audited.cluster.metadata_address)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr == "Error: there is no topic 'nowhere': `gnomon topic list` shows all topics\n"


def test_the_topics_of_a_stopped_standalone_node_are_audited_in_its_directory(inside: Run, tmp_path: Path) -> None:
    with KafkaBroker(data_dir=tmp_path / "data") as broker:
        at = {"GNOMON_BOOTSTRAP_SERVER": broker.bootstrap_servers}
        assert inside("topic", "create", "alone", **at).returncode == 0
        assert inside("produce", "alone", stdin="one\ntwo\n", **at).returncode == 0
        assert inside("pipeline", "audit", "alone", "--data-dir", tmp_path / "data").returncode == 5
    done = inside("pipeline", "audit", "alone", "--data-dir", tmp_path / "data", "--output", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["partitions"][0]["end_offset"] == 2


def test_no_topic_is_a_usage_error(inside: Run) -> None:
    assert inside("pipeline", "audit", "--metadata", "127.0.0.1:1").returncode == 2
    assert "Did you mean 'audit'" in inside("pipeline", "audi").stderr
