from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from gnomon.testing import KafkaBroker

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_lines_come_back_in_order_in_every_format(ask: Run) -> None:
    ask("topic", "create", "keyed", "--partitions", 1)
    done = ask("produce", "keyed", "--key-separator", ":", "--header", "from=here", stdin="a:1\nb:2:x\nc:\n")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "delivered 3 records to topic 'keyed'\n"
    assert ask("consume", "keyed", "--count", 3).stdout == "1\n2:x\n\n"
    assert ask("consume", "keyed", "--from", 1, "--timeout", 0.5, "--format", "kv").stdout == "b\t2:x\nc\t\n"
    record = json.loads(ask("consume", "keyed", "--from", 1, "--count", 1, "--format", "json").stdout)
    assert record.pop("timestamp_ms") > 0
    assert record == {
        "topic": "keyed",
        "partition": 0,
        "offset": 1,
        "key": "b",
        "value": "2:x",
        "headers": [{"name": "from", "value": "here"}],
    }


def test_a_missing_topic_partition_or_offset_ends_with_5(ask: Run) -> None:
    assert ask("consume", "nope", "--count", 1).returncode == 5
    ask("topic", "create", "small", "--partitions", 1)
    assert ask("produce", "small", "--partition", 7, stdin="x\n").returncode == 5
    assert ask("consume", "small", "--partition", 7).returncode == 5
    beyond = ask("consume", "small", "--from", 99)
    assert (beyond.returncode, beyond.stderr.count("\n")) == (5, 1), beyond.stderr


def test_a_count_that_is_not_reached_ends_with_1(ask: Run) -> None:
    ask("produce", "short", stdin="x\n")
    done = ask("consume", "short", "--count", 2, "--timeout", 0.5)
    assert (done.returncode, done.stdout) == (1, "x\n")
    assert "1 records, not 2" in done.stderr


def test_consume_ends_with_0_when_its_output_is_closed(ask: Run, broker: KafkaBroker) -> None:
    ask("produce", "long", stdin="line\n" * 50_000)
    consume = subprocess.Popen(
        [sys.executable, "-m", "gnomon.cli.main", "consume", "long", "--bootstrap-server", broker.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert consume.stdout is not None
    assert consume.stderr is not None
    assert consume.stdout.readline() == b"line\n"
    consume.stdout.close()
    assert consume.stderr.read() == b""
    consume.stderr.close()
    assert consume.wait(20) == 0


def test_consume_notices_a_closed_output_while_no_record_arrives(ask: Run, broker: KafkaBroker) -> None:
    ask("produce", "quiet", stdin="first\n")
    command = [sys.executable, "-m", "gnomon.cli.main", "consume", "quiet", "--group", "quiet-readers"]
    with subprocess.Popen(
        [*command, "--bootstrap-server", broker.bootstrap_servers], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as consume:
        assert consume.stdout is not None
        assert consume.stderr is not None
        assert consume.stdout.readline() == b"first\n"
        consume.stdout.close()
        try:
            assert (consume.wait(5), consume.stderr.read()) == (0, b"")
        finally:
            consume.kill()
    (committed,) = json.loads(ask("group", "describe", "quiet-readers", "--output", "json").stdout)["offsets"]
    assert committed["committed"] == 1


def test_records_that_consume_could_not_print_are_not_committed(ask: Run, broker: KafkaBroker) -> None:
    ask("produce", "unwritten", stdin="line\n")
    command = [sys.executable, "-m", "gnomon.cli.main", "consume", "unwritten", "--group", "unwritten-readers"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*command, "--bootstrap-server", broker.bootstrap_servers],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=20,
            env=os.environ | {"PYTHONUNBUFFERED": ""},
        )
    assert "No space left on device" in done.stderr
    assert done.returncode != 0
    assert json.loads(ask("group", "describe", "unwritten-readers", "--output", "json").stdout)["offsets"] == []


@pytest.mark.parametrize(
    ("number", "bound", "ends"),
    [
        (signal.SIGTERM, [], (0, b"")),
        (signal.SIGINT, [], (0, b"")),
        (signal.SIGINT, ["--count", "2"], (1, b"Aborted!\n")),
        (signal.SIGTERM, ["--to", "2"], (1, b"Aborted!\n")),
    ],
)
def test_an_interrupted_consume_ends_with_0_unless_it_had_an_end(
    ask: Run, broker: KafkaBroker, number: signal.Signals, bound: list[str], ends: tuple[int, bytes]
) -> None:
    topic = f"tailed-{number.name}-{len(bound)}"
    ask("topic", "create", topic, "--partitions", "1")
    ask("produce", topic, stdin="first\n")
    command = [sys.executable, "-m", "gnomon.cli.main", "consume", topic, *bound]
    consume = subprocess.Popen(
        [*command, "--bootstrap-server", broker.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert consume.stdout is not None
    assert consume.stdout.readline() == b"first\n"
    consume.send_signal(number)
    _, stderr = consume.communicate(timeout=20)
    assert (consume.returncode, stderr.lstrip()) == ends


def test_bad_usage_ends_with_2(inside: Run) -> None:
    assert inside("consume", "x", "--from", "middle").returncode == 2
    assert inside("consume", "x", "--group", "g", "--partition", 1).returncode == 2
    assert inside("produce", "x", "--header", "novalue").returncode == 2
    assert inside("consume", "x", "--group", "g", "--to", "end").returncode == 2
    assert inside("consume", "x", "--last", 3, "--from", "-1h").returncode == 2
    assert "--last 5 for the last records" in inside("consume", "x", "--from", "-5").stderr
    assert "'%q' is unknown: the fields are %t, %p" in inside("consume", "x", "--format", "%q").stderr
    assert inside("consume", "x", "--format", "vlaue").returncode == 2


@pytest.fixture
def dated(ask: Run) -> str:
    """A topic whose records were made a second apart, in two partitions by turns; the last one has an old timestamp."""
    lines = [
        f'{{"value": "{n}", "partition": {n % 2}, "timestamp_ms": {1700000000000 + n * 1000}}}\n' for n in range(8)
    ]
    lines.append('{"value": "old", "partition": 1, "timestamp_ms": 1600000000000}\n')
    ask("topic", "create", "dated", "--partitions", 2)
    assert ask("produce", "dated", "--format", "json", stdin="".join(lines)).returncode == 0
    return "dated"


def test_a_reading_is_bounded_by_times_offsets_and_the_end(ask: Run, dated: str) -> None:
    try:
        whole = ask("consume", dated, "--to", "latest")
        assert (whole.returncode, sorted(whole.stdout.split())) == (0, [*"01234567", "old"])
        between = ask("consume", dated, "--from", "@1700000002", "--to", "2023-11-14T22:13:25Z")
        assert (between.returncode, sorted(between.stdout.split())) == (0, ["2", "3", "4"])
        assert ask("consume", dated, "--from", "-1h", "--to", "end").stdout == ""
        assert ask("consume", dated, "--from", 1, "--to", 3, "--partition", 0).stdout == "2\n4\n"
        assert ask("consume", dated, "--from", 3, "--to", 3, "--partition", 0).stdout == ""
        one = ask("consume", dated, "--to", "end", "--partition", 0, "--partition", 0, "--format", "%p")
        assert one.stdout == "0000"
        assert ask("consume", dated, "--from", 1, "--partition", 0, "--partition", 1).returncode == 2
    finally:
        ask("topic", "delete", dated)


def test_the_last_records_are_those_of_the_topic_and_keep_the_order_of_each_partition(ask: Run, dated: str) -> None:
    try:
        assert ask("consume", dated, "--last", 3).stdout == "6\n7\nold\n"
        assert ask("consume", dated, "--last", 2, "--partition", 0).stdout == "4\n6\n"
        assert len(ask("consume", dated, "--last", 100).stdout.split()) == 9
    finally:
        ask("topic", "delete", dated)


def test_an_end_that_is_not_reached_in_time_ends_with_1(ask: Run) -> None:
    ask("topic", "create", "unended", "--partitions", 1)
    ask("produce", "unended", stdin="x\n")
    done = ask("consume", "unended", "--to", 5, "--timeout", 0.3)
    assert (done.returncode, done.stdout) == (1, "x\n")
    assert "gave 1 records, and then none for 0.3 s before the end of --to" in done.stderr
