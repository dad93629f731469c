from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

import gnomon
from gnomon.testing import BrokerNotStarted, KafkaBroker

Run = Callable[..., "subprocess.CompletedProcess[str]"]
PORTS = ("--kafka-port", "0", "--native-port", "0", "--admin-port", "0")


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gnomon.cli.main", "standalone", *PORTS, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_standalone_prints_one_line_when_it_is_ready_and_ends_with_0_at_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = start("--data-dir", str(tmp_path / "data"))
    assert process.stdout is not None
    line = process.stdout.readline()
    assert re.fullmatch(
        rf"ready kafka=127\.0\.0\.1:\d+ admin=127\.0\.0\.1:\d+ data={tmp_path}/data native=127\.0\.0\.1:\d+"
        rf" pid={process.pid}\n",
        line,
    )
    process.send_signal(number)
    stdout, _ = process.communicate(timeout=20)
    assert (process.returncode, stdout) == (0, "")


def test_each_line_of_the_log_names_the_node(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    process = start("--data-dir", str(data), "--set", "broker.id=7")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready ")
    process.terminate()
    _, log = process.communicate(timeout=20)
    lines = [json.loads(line) for line in log.splitlines()]
    assert {"data_directory_open", "started", "stopped"} <= {line["event"] for line in lines}
    assert {line["node"] for line in lines} == {"broker-7"}


def test_flags_win_over_the_file_and_the_file_over_the_default(tmp_path: Path, gnomon: Run) -> None:
    file = tmp_path / "gnomon.toml"
    file.write_text('data_dir = "/nowhere"\n[kafka]\nnum.partitions = 7\n')
    process = start(
        "--config", str(file), "--data-dir", str(tmp_path / "data"), "--set", "default.replication.factor=1"
    )
    assert process.stdout is not None
    where = process.stdout.readline().split()[1].removeprefix("kafka=")
    created = gnomon("topic", "create", "x", "--bootstrap-server", where)
    process.terminate()
    process.communicate(timeout=20)
    assert "with 7 partitions" in created.stderr


def test_a_wildcard_address_without_an_advertised_host_is_a_warning(tmp_path: Path) -> None:
    process = start("--data-dir", str(tmp_path / "data"), "--set", "broker.kafka_host=0.0.0.0")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready kafka=0.0.0.0:")
    process.terminate()
    _, stderr = process.communicate(timeout=20)
    assert "GNOMON_BROKER__ADVERTISED_HOST" in stderr


def test_a_directory_in_use_ends_with_5_and_a_port_in_use_with_1(
    gnomon: Run, broker: KafkaBroker, tmp_path: Path
) -> None:
    # Two processes must not share a directory: it is reported before the ports, which the first process has too.
    ports = ("--kafka-port", broker.port, "--native-port", broker.native_port, "--admin-port", broker.admin_port)
    taken = gnomon("standalone", *ports, "--data-dir", broker.data_dir)
    assert (taken.returncode, taken.stdout, taken.stderr.count("\n")) == (5, "", 1)
    assert f"in use by process {broker.pid}" in taken.stderr
    for flag, port in zip(ports[::2], ports[1::2], strict=True):
        busy = gnomon("standalone", *PORTS, flag, port, "--data-dir", tmp_path)
        assert (busy.returncode, busy.stdout, busy.stderr.count("\n")) == (1, "", 1), busy.stderr
        assert str(port) in busy.stderr


def test_a_newer_format_ends_with_1_and_is_left_alone(gnomon: Run, tmp_path: Path) -> None:
    (tmp_path / "FORMAT").write_text("99\n")
    done = gnomon("standalone", *PORTS, "--data-dir", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "upgrade gnomon" in done.stderr
    assert (tmp_path / "FORMAT").read_text() == "99\n"


def test_a_directory_whose_entries_are_gone_is_refused_until_they_are_put_back(
    gnomon: Run, inside: Run, tmp_path: Path
) -> None:
    at = ("--data-dir", tmp_path / "data")
    assert inside("ledger", "create", "audit", *at).returncode == 0
    assert inside("ledger", "append", "audit", *at, stdin="one\n").returncode == 0
    (tmp_path / "data" / "bookie").rename(tmp_path / "kept")
    quiet = {"GNOMON_LOG__LEVEL": "error"}  # a busy machine has long turns
    for _ in range(2):  # the first attempt creates an empty store
        for refused in (gnomon("standalone", *PORTS, *at, **quiet), inside("ledger", "read", "audit", *at)):
            assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1), refused.stderr
            assert f"{tmp_path}/data/bookie was gone or empty" in refused.stderr
            assert f"delete {tmp_path}/data and start again" in refused.stderr
    shutil.rmtree(tmp_path / "data" / "bookie")
    (tmp_path / "kept").rename(tmp_path / "data" / "bookie")
    assert inside("ledger", "read", "audit", *at, "--format", "text").stdout == "one\n"


def test_an_unknown_or_invalid_setting_ends_with_2(inside: Run) -> None:
    unknown = inside("standalone", "--set", "num.partition=3")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "num.partitions" in unknown.stderr
    assert inside("standalone", "--set", "num.partitions=many").returncode == 2
    assert inside("standalone", "--kafka-port", "70000").returncode == 2


def test_the_data_directory_and_all_its_files_are_for_their_owner_only(tmp_path: Path) -> None:
    data = tmp_path / "data"
    process = start("--data-dir", str(data))
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    _, errors = process.communicate(timeout=20)
    assert "data_directory_open" not in errors
    paths = [data, *data.rglob("*")]
    assert len(paths) > 6
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in paths}
    assert {mode & 0o077 for _, mode in modes} == {0}


def test_a_directory_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    data.chmod(0o755)
    process = start("--data-dir", str(data))
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    _, errors = process.communicate(timeout=20)
    assert "data_directory_open" in errors
    assert "0755" in errors
    assert f"chmod -R go= {data}" in errors


def open_files(pid: int) -> set[str]:
    """The files that a process has open, except those that it closes meanwhile."""
    found = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(os.readlink(file))
    return found


OTHER_SYSTEM = (sys.executable, "-P", str(Path(__file__).with_name("other_system.py")))


def test_a_forced_poller_that_the_system_lacks_ends_with_one_line() -> None:
    broker = KafkaBroker(settings={"network.poller": "epoll"}, command=OTHER_SYSTEM)
    with pytest.raises(BrokerNotStarted) as failed:
        broker.start()
    broker.close()
    assert str(failed.value).splitlines()[1:] == [
        "Error: this system has no epoll: set network.poller to 'selectors', or leave it out"
    ]


@pytest.mark.parametrize(
    ("poller", "command"),
    [("epoll", None), ("selectors", None), ("auto", OTHER_SYSTEM)],
    ids=["epoll", "second", "other"],
)
def test_a_broker_serves_kafka_and_native_clients_with_each_poller_and_without_linuxs_own_calls(
    poller: str, command: tuple[str, ...] | None
) -> None:
    with KafkaBroker(settings={"network.poller": poller}, command=command) as broker:
        assert ("anon_inode:[eventfd]" in open_files(broker.pid)) == (poller == "epoll")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(1000):
            producer.produce("orders", b"%d" % number + bytes(10_000))
        assert producer.flush(20) == 0
        with gnomon.connect_blocking(broker.native_address) as client:
            consumer = client.subscribe("orders", "billing", initial_position="earliest")
            for number in range(1000):
                message = consumer.receive(seconds=20)
                assert message is not None
                assert message.value[:-10_000] == b"%d" % number
                consumer.ack(message)
        assert broker.stop() == 0
