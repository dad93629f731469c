from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from gnomon.cli.exit import Failure
from gnomon.cli.kafka import delivery, produce
from gnomon.wire.kafka.errors import ErrorCode

Run = Callable[..., "subprocess.CompletedProcess[str]"]


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


def _admin_that_tells(code: int) -> SimpleNamespace:
    """An admin client that reports this error for any topic."""
    found = SimpleNamespace(error=KafkaError(code), partitions={})
    return SimpleNamespace(list_topics=lambda topic, timeout: SimpleNamespace(topics={topic: found}))


def test_only_the_error_for_a_missing_topic_advises_to_create_it(inside: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for code, advised in ((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True), (ErrorCode.INVALID_TOPIC_EXCEPTION, False)):
        monkeypatch.setattr(produce, "connect", lambda _bootstrap, told=code: _admin_that_tells(told))
        done = inside("produce", "t", stdin="x")
        assert (done.returncode, "`gnomon topic create t` creates it" in done.stderr) == (5, advised), done.stderr


def test_json_lines_keep_every_byte_and_their_output_is_valid_input(ask: Run) -> None:
    ask("topic", "create", "first-copy", "--partitions", 2)
    ask("topic", "create", "second-copy", "--partitions", 2)
    lines = (
        '{"key": "k", "value": "", "headers": {"a": "1", "b": null}, "partition": 1, "timestamp_ms": 1700000000000}\n'
        '{"key_base64": "/w==", "value_base64": "AP8K", "partition": 1}\n'
        '{"value": null, "headers": [{"name": "a", "value_base64": "/w=="}, {"name": "a", "value": "x"}],'
        ' "partition": 1}\n'
    )
    done = ask("produce", "first-copy", "--format", "json", "--compression", "zstd", stdin=lines)
    assert (done.returncode, done.stderr) == (0, "delivered 3 records to topic 'first-copy'\n")
    written = ask("consume", "first-copy", "--to", "latest", "--format", "json").stdout
    first, binary, tombstone = map(json.loads, written.splitlines())
    assert (first["timestamp_ms"], first["value"]) == (1700000000000, "")
    assert first["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": None}]
    assert (binary["key_base64"], binary["value_base64"]) == ("/w==", "AP8K")
    assert (tombstone["key"], tombstone["value"]) == (None, None)
    assert tombstone["headers"] == [{"name": "a", "value_base64": "/w=="}, {"name": "a", "value": "x"}]
    assert ask("produce", "second-copy", "--format", "json", stdin=written).returncode == 0
    copied = ask("consume", "second-copy", "--to", "latest", "--format", "json").stdout
    assert copied == written.replace("first-copy", "second-copy")


def test_headers_and_tombstones_are_written_by_line(ask: Run) -> None:
    ask("topic", "create", "by-line", "--partitions", 1)
    separators = ("--header-separator", "|", "--key-separator", ":", "--tombstone")
    done = ask("produce", "by-line", *separators, "--header", "all=1", stdin="a=1,b|k:v\n|k:\n")
    assert (done.returncode, done.stderr) == (0, "delivered 2 records to topic 'by-line'\n")
    shown = ask("consume", "by-line", "--to", "end", "--format", r"%h %k %S\n").stdout
    assert shown == "all=1,a=1,b k 1\nall=1 k -1\n"


def test_a_line_to_a_missing_partition_is_counted_and_ends_with_1(ask: Run) -> None:
    ask("topic", "create", "narrow", "--partitions", 1)
    lines = '{"value": "x", "partition": 0}\n{"value": "y", "partition": 7}\n{"value": "z"}\n'
    done = ask("produce", "narrow", "--format", "json", stdin=lines)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "delivered 2 records to topic 'narrow'"
    assert "1 records were not delivered to topic 'narrow': the first is line 2: " in done.stderr


def test_an_unfit_line_of_json_ends_with_1_and_is_named(ask: Run) -> None:
    done = ask("produce", "unfit", "--format", "json", stdin='{"value": "x"}\n{"valeu": "y"}\n{"value": "z"}\n')
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "delivered 1 records to topic 'unfit'",
        "Error: line 2 has an unknown field 'valeu': did you mean 'value'; it and those after it were not sent",
    ]


def test_json_takes_no_separators(inside: Run) -> None:
    assert inside("produce", "x", "--format", "json", "--key-separator", ":").returncode == 2
