from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from gnomon.cli.exit import Failure
from gnomon.cli.kafka import delivery, records
from gnomon.testing import KafkaBroker
from gnomon.wire.kafka.errors import ErrorCode

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


def test_a_line_without_the_separator_ends_with_1_and_is_named(ask: Run) -> None:
    done = ask("produce", "partly", "--key-separator", ":", stdin="a:1\nb\nc:3\n")
    assert done.returncode == 1
    assert "delivered 1 records" in done.stderr
    assert "line 2" in done.stderr


def test_a_line_to_a_shadow_ends_with_1_and_names_the_source(ask: Run) -> None:
    ask("topic", "create", "shown", "--partitions", 1)
    ask("topic", "create-shadow", "shown", "shown-copy")
    done = ask("produce", "shown-copy", stdin="x\n")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "delivered 0 records to topic 'shown-copy'",
        "Error: 1 records were not delivered to topic 'shown-copy': it is a shadow of 'shown': write to the source",
    ]


def test_a_line_that_is_too_large_is_named_with_the_limit_and_the_others_are_written(ask: Run) -> None:
    ask("topic", "create", "bounded", "--partitions", 1, "--config", "max.message.bytes=2000")
    for size in (3000, 1995):  # the client refuses the first; the broker refuses the second, with the batch header
        done = ask("produce", "bounded", stdin=f"a\n{'x' * size}\nb\n")
        assert done.returncode == 1
        assert done.stderr.splitlines() == [
            "delivered 2 records to topic 'bounded'",
            f"Error: 1 records were not delivered to topic 'bounded': line 2 of {size} bytes makes a batch of more than"
            " 2000, which max.message.bytes allows: write shorter lines, or"
            " `gnomon topic alter bounded --set max.message.bytes=BYTES`",
        ]


def test_many_lines_fit_a_topic_that_allows_small_batches_only(ask: Run) -> None:
    ask("topic", "create", "little", "--partitions", 1, "--config", "max.message.bytes=2000")
    done = ask("produce", "little", stdin=f"{'x' * 99}\n" * 1000)
    assert (done.returncode, done.stderr) == (0, "delivered 1000 records to topic 'little'\n")


def test_a_refusal_because_of_a_backlog_names_the_quotas_and_the_command_to_change_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quotas = {"gnomon.backlog.quota.bytes": "1000", "gnomon.backlog.quota.ms": "-1"}
    configs = {name: SimpleNamespace(value=value) for name, value in quotas.items()}
    monkeypatch.setattr(delivery, "topic_configs", lambda _admin, _topic: configs)
    refused = delivery.DeliveryRefused(1, 5, KafkaError(ErrorCode.POLICY_VIOLATION))
    text = delivery.why_refused(refused, AdminClient({}), "orders")
    assert "(gnomon.backlog.quota.bytes=1000 and gnomon.backlog.quota.ms=-1)" in text
    assert "`gnomon topic alter orders --set NAME=VALUE`" in text


def test_a_producer_that_gives_up_fails_with_the_counts_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(_seconds: float) -> int:
        raise KafkaException(KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "desynchronized"))

    sending = delivery.Delivery(SimpleNamespace(flush=gives_up), "orders", [], None)
    with pytest.raises(Failure, match=r"^0 records were .* some may have been: desynchronized"):
        sending.finish(AdminClient({}))


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_consume_ends_with_0(ask: Run, broker: KafkaBroker, number: signal.Signals) -> None:
    ask("produce", "tailed", stdin="first\n")
    consume = subprocess.Popen(
        [sys.executable, "-m", "gnomon.cli.main", "consume", "tailed", "--bootstrap-server", broker.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert consume.stdout is not None
    assert consume.stdout.readline() == b"first\n"
    consume.send_signal(number)
    _, stderr = consume.communicate(timeout=20)
    assert (consume.returncode, stderr) == (0, b"")


def test_bad_usage_ends_with_2(inside: Run) -> None:
    assert inside("consume", "x", "--from", "middle").returncode == 2
    assert inside("consume", "x", "--group", "g", "--partition", 1).returncode == 2
    assert inside("produce", "x", "--header", "novalue").returncode == 2


def _admin_that_tells(code: int) -> SimpleNamespace:
    """An admin client that reports this error for any topic."""
    found = SimpleNamespace(error=KafkaError(code), partitions={})
    return SimpleNamespace(list_topics=lambda topic, timeout: SimpleNamespace(topics={topic: found}))


def test_only_the_error_for_a_missing_topic_advises_to_create_it(inside: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for code, advised in ((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True), (ErrorCode.INVALID_TOPIC_EXCEPTION, False)):
        monkeypatch.setattr(records, "connect", lambda _bootstrap, told=code: _admin_that_tells(told))
        done = inside("produce", "t", stdin="x")
        assert (done.returncode, "`gnomon topic create t` creates it" in done.stderr) == (5, advised), done.stderr
