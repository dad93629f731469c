from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from etcd_needed import etcd_or_skip

from gnomon.cli.cluster import cluster
from gnomon.runtime.disk.data_directory import FORMAT
from gnomon.testing.storms.processes.ledger_processes import wait_until

Run = Callable[..., "subprocess.CompletedProcess[str]"]
LINE = re.compile(
    r"ready kafka=(?P<kafka>[\d.:]+,[\d.:]+) admin=(?P<admin>[\d.:]+,[\d.:]+)"
    r" metadata=(?P<metadata>[\w/.:]+) native=[\d.:]+,[\d.:]+ pids=(?P<pids>[\w.:,-]+)\n"
)


class Up:
    """A `gnomon cluster up` that is ready."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gnomon.cli.main", "cluster", "up", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = LINE.fullmatch(line)
        if found is None:
            pytest.fail(line + self.process.communicate()[1])
        self.kafka, self.admin, self.metadata = found["kafka"], found["admin"].split(","), found["metadata"]
        self.pids = {name: int(pid) for name, pid in (each.split(":") for each in found["pids"].split(","))}
        """The ids of its processes as it printed them, by name."""

    def children(self) -> list[psutil.Process]:
        """The processes that it started, and theirs."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill(self, name: str) -> None:
        """Kills the process of this name."""
        os.kill(self.pids[name], signal.SIGKILL)

    def said(self, text: str) -> None:
        """Waits for the line on standard error."""
        assert self.process.stderr is not None
        seen = []
        while text + "\n" not in seen:
            seen.append(self.process.stderr.readline())
            assert seen[-1], f"{text!r} was not said before the end: {seen}"

    def said_again(self, name: str) -> None:
        """Waits for the line that a killed process serves again, and notes its new id."""
        assert self.process.stderr is not None
        again = re.match(rf"{name} serves again as process (\d+)\n", self.process.stderr.readline())
        assert again is not None, f"{name} does not serve again"
        self.pids[name] = int(again[1])

    def end(self) -> tuple[int, str, str]:
        """Ends it; returns its exit code and the output that was not read yet."""
        self.process.terminate()
        return self.ended()

    def ended(self) -> tuple[int, str, str]:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        code = self.process.wait(60)
        return code, self.process.stdout.read(), self.process.stderr.read()


@contextmanager
def up(*options: str) -> Iterator[Up]:
    cluster = Up(*options)
    try:
        yield cluster
    finally:
        cluster.process.kill()
        cluster.process.communicate()


class Said(logging.Handler):
    """The log lines of a client."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.logger = logging.Logger("client")
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        self.lines.append(record.getMessage())


def ready(admin: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{admin}/readyz") as page:
            return bool(page.status == 200)
    except urllib.error.HTTPError:
        return False


def produce(bootstrap: str, count: int, first: int = 0, topic: str = "flights") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000})
    failures = []
    for number in range(first, first + count):
        producer.produce(topic, str(number), on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(60) == 0
    assert failures == []


def consume(bootstrap: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("flights", 0, 0)])
    try:
        values: list[str] = []

        def all_there() -> bool:
            values.extend(message.value().decode() for message in consumer.consume(100, 1.0) if message.error() is None)
            return len(values) >= count

        wait_until(all_there, f"{count} records are read")
        return values
    finally:
        consumer.close()


def check_views(inside: Run, cluster: Up, bookies: int) -> None:
    """`gnomon broker list` and `gnomon cluster status` show what runs."""
    brokers = json.loads(inside("broker", "list", "--metadata", cluster.metadata, "--output", "json").stdout)
    assert ",".join(row["kafka"] for row in brokers) == cluster.kafka
    assert [(row["broker"], row["state"]) for row in brokers] == [(1, "alive"), (2, "alive")]
    status = json.loads(inside("cluster", "status", "--metadata", cluster.metadata, "--output", "json").stdout)
    assert (status["metadata"], status["brokers"]) == (cluster.metadata, brokers)
    assert [(row["bookie"], row["state"], row["ledgers"] > 0) for row in status["bookies"]] == [
        (f"bookie-{number}", "alive", True) for number in range(1, bookies + 1)
    ]
    assert status["auditor"] in [None, *(row["bookie"] for row in status["bookies"])], "none may be elected yet"
    assert status["revision"] > status["ledgers"] > 0
    assert status["under_replicated"] == len(status["under_replicated_ledgers"]) == 0
    table = inside("cluster", "status", "--metadata", cluster.metadata).stdout
    assert ("brokers:" in table, "bookies:" in table) == (True, True)


@pytest.mark.parametrize("kind", ["embedded", "etcd"])
def test_a_cluster_prints_one_ready_line_serves_kafka_clients_and_stops_all_its_processes(
    tmp_path: Path, kind: str, inside: Run
) -> None:
    if kind == "etcd":
        etcd_or_skip()
    bookies = 1 if kind == "etcd" else 3
    options = ("--metadata", kind, "--bookies", str(bookies), "--data-dir", str(tmp_path / "data"))
    for round_ in range(2):  # the second round uses the data of the first
        with up(*options) as cluster:
            assert cluster.metadata.startswith("etcd://") == (kind == "etcd")
            if round_ == 0:
                produce(cluster.kafka, 10)
            assert consume(cluster.kafka, 10) == [str(number) for number in range(10)]
            for admin in cluster.admin:
                with urllib.request.urlopen(f"http://{admin}/readyz?verbose") as page:
                    assert page.read() == b"[+]metadata ok\n[+]registration ok\n[+]tables ok\nready\n"
            listed = inside("bookie", "list", "--metadata", cluster.metadata).stdout
            assert listed.count("alive") == bookies
            check_views(inside, cluster, bookies)
            children = cluster.children()
            assert len(children) == bookies + (4 if kind == "etcd" else 3)
            code, stdout, stderr = cluster.end()
            assert (code, stdout, stderr) == (0, "", "stopped\n")
            assert not any(child.is_running() for child in children)


def test_a_killed_process_is_restarted_on_its_ports_and_no_record_is_lost() -> None:
    with up("--bookies", "3") as cluster:
        produce(cluster.kafka, 10)
        for number, name in enumerate(("broker-1", "bookie-1", "metadata"), 1):
            cluster.kill(name)
            cluster.said(f"{name} was killed by SIGKILL: it is started again")
            produce(cluster.kafka, 10, 10 * number)
            cluster.said_again(name)
        assert set(cluster.pids.values()) == {child.pid for child in cluster.children()}
        wait_until(lambda: all(ready(admin) for admin in cluster.admin), "both are ready")
        assert consume(cluster.kafka, 40) == [str(number) for number in range(40)]
        assert cluster.end() == (0, "", "stopped\n")


def test_a_member_that_joined_while_the_metadata_was_paused_reads_after_the_pause() -> None:
    """librdkafka fetches its commits once after it joined, and again only after certain errors."""
    said = Said()
    with up("--bookies", "1") as cluster:
        produce(cluster.kafka, 10)
        metadata = cluster.pids["metadata"]
        group = {"group.id": "g", "auto.offset.reset": "earliest", "debug": "topic", "logger": said.logger}
        consumer = Consumer({"bootstrap.servers": cluster.kafka, **group})
        consumer.subscribe(["flights"], on_assign=lambda *_: os.kill(metadata, signal.SIGSTOP))
        read: list[str] = []

        def reads(count: int) -> bool:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                read.append(message.value().decode())
            return len(read) >= count

        def refused() -> bool:
            return reads(1) or any("OffsetFetch" in line and "returned Broker" in line for line in said.lines)

        try:
            try:
                wait_until(refused, "the member was not told its commits")
            finally:
                os.kill(metadata, signal.SIGCONT)
            assert read == []
            wait_until(lambda: reads(10), "the member has read all")
            assert read == [str(number) for number in range(10)]
        finally:
            consumer.close()
        assert cluster.end() == (0, "", "stopped\n")


def test_a_killed_etcd_is_restarted() -> None:
    etcd_or_skip()
    with up("--metadata", "etcd", "--bookies", "1") as cluster:
        for topic, itself in enumerate((True, False)):  # etcd itself, and its parent process
            (etcd,) = psutil.Process(cluster.pids["etcd"]).children()
            os.kill(etcd.pid if itself else cluster.pids["etcd"], signal.SIGKILL)
            cluster.said("etcd was killed by SIGKILL: it is started again")
            cluster.said_again("etcd")
            produce(cluster.kafka, 10, topic=f"flights-{topic}")
        children = cluster.children()
        assert len(children) == 5
        assert cluster.end() == (0, "", "stopped\n")
        assert not any(child.is_running() for child in children)


def test_a_killed_process_that_cannot_restart_ends_the_cluster_and_is_named(tmp_path: Path) -> None:
    with up("--brokers", "2", "--bookies", "1", "--data-dir", str(tmp_path)) as cluster:
        children = cluster.children()
        shutil.rmtree(tmp_path / "bookie-1")
        cluster.kill("bookie-1")
        code, _, stderr = cluster.ended()
        assert code == 1
        assert "Error: bookie-1 ended with 1: bookie 'bookie-1' was used before with another disk" in stderr
        assert not any(child.is_running() for child in children)


def test_a_decommissioned_bookie_ends_alone_and_a_restarting_broker_does_not_delay_the_end(
    inside: Run,
) -> None:
    with up("--bookies", "2") as cluster:
        assert inside("bookie", "decommission", "bookie-1", "--metadata", cluster.metadata).returncode == 0
        cluster.said("bookie-1 ended, as it was asked to; the others go on")
        cluster.kill("broker-1")
        cluster.said("broker-1 was killed by SIGKILL: it is started again")
        children = cluster.children()
        assert cluster.end() == (0, "", "stopped\n")
        assert not any(child.is_running() for child in children)


def test_the_children_of_a_killed_cluster_end(tmp_path: Path) -> None:
    with up("--brokers", "2", "--bookies", "1", "--data-dir", str(tmp_path)) as cluster:
        children = cluster.children()
        cluster.process.kill()
        wait_until(lambda: not any(child.is_running() for child in children), "the children end")


def test_a_child_that_cannot_start_ends_the_cluster_with_its_reason(gnomon: Run, tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "FORMAT").write_text(f"{FORMAT} bookie\n")
    done = gnomon("cluster", "up", "--data-dir", tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert "metadata ended with 1: data directory" in done.stderr


def test_a_data_directory_belongs_to_one_command_and_to_one_process_at_a_time(inside: Run, tmp_path: Path) -> None:
    with up("--brokers", "2", "--bookies", "1", "--data-dir", str(tmp_path / "data")):
        second = inside("cluster", "up", "--data-dir", tmp_path / "data")
        assert (second.returncode, second.stdout, second.stderr.count("\n")) == (5, "", 1), second.stderr
        assert "is in use by process" in second.stderr
    other = inside("standalone", "--data-dir", tmp_path / "data", "--admin-port", 0)
    assert (other.returncode, other.stdout, other.stderr.count("\n")) == (1, "", 1), other.stderr
    assert "is one of `gnomon cluster up`, not of `gnomon standalone`" in other.stderr
    (tmp_path / "FORMAT").write_text(f"{FORMAT} standalone\n")
    whole = inside("cluster", "up", "--data-dir", tmp_path)
    assert (whole.returncode, whole.stdout, whole.stderr.count("\n")) == (1, "", 1), whole.stderr
    assert "is one of `gnomon standalone`, not of `gnomon cluster up`" in whole.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"FORMAT", "LOCK", "data"}


@pytest.mark.parametrize(
    ("options", "ports"),
    [
        ((), [(0, 0), (0, 0)]),
        (("--kafka-port", "0", "--native-port", "6650"), [(0, 6650), (0, 6651)]),
        (("--kafka-port", "9092", "--native-port", "0"), [(9092, 0), (9093, 0)]),
    ],
)
def test_brokers_get_consecutive_ports_or_free_ones(
    inside: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], ports: list[tuple[int, int]]
) -> None:
    plans: list[cluster.Plan] = []
    monkeypatch.setattr("gnomon.cli.cluster.cluster.trio.run", lambda _up, plan: plans.append(plan))
    assert inside("cluster", "up", "--brokers", "2", *options).returncode == 0
    assert [plan.broker_ports for plan in plans] == [ports]


def test_a_broker_refuses_missing_and_invalid_options(inside: Run) -> None:
    assert "give --metadata" in inside("broker", "--id", 1).stderr
    odd = inside("broker", "--metadata", "127.0.0.1:1", "--set", "broker_service.ack_quorum=4")
    assert (odd.returncode, odd.stderr.count("\n")) == (2, 1)
    late = inside("broker", "--id", 1, "list", "--metadata", "127.0.0.1:1")
    assert (late.returncode, "give the options of `list` after its name" in late.stderr) == (2, True)


def test_settings_reach_every_process_and_those_of_kafka_the_brokers_alone(inside: Run) -> None:
    settings = ("--set", "log.level=warning", "--set", "num.partitions=7", "--set", "broker_service.ack_quorum=1")
    with up("--brokers", "2", "--bookies", "2", *settings) as cluster:
        lines = [" ".join(child.cmdline()) for child in cluster.children()]
        assert [line.count("--set=log.level=warning") for line in lines] == [1] * 5
        assert sum("--set=num.partitions=7" in line for line in lines) == 2
        created = inside("topic", "create", "wide", "--bootstrap-server", cluster.kafka)
        assert created.stderr == "created topic 'wide' with 7 partitions\n"
        inside("produce", "wide", "--partition", 0, "--bootstrap-server", cluster.kafka, stdin="x\n")
        at = ("--metadata", cluster.metadata, "--output", "json")
        (ledger,) = json.loads(inside("ledger", "list", "topics/", *at).stdout)
        shown = json.loads(inside("ledger", "show", ledger["ledger"], *at).stdout)
        assert (shown["quorum"]["write_quorum"], shown["quorum"]["ack_quorum"]) == (2, 1)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("num.partitons=3", "did you mean kafka.num.partitions"),
        ("log.level=loud", "log.level"),
        ("broker.id=3", "each process of the cluster gets its own"),
        ("data_dir=/tmp/x", "each process of the cluster gets its own"),
        ("broker", "give NAME=VALUE"),
    ],
)
def test_an_unfit_setting_is_refused_before_a_process_starts(inside: Run, setting: str, why: str) -> None:
    done = inside("cluster", "up", "--set", setting)
    assert (done.returncode, done.stdout, why in done.stderr) == (2, "", True), done.stderr
