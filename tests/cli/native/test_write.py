"""`gnomon write` and `gnomon position`, against a broker process that tests share."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

from gnomon.cli.exit import Exit
from gnomon.testing import KafkaBroker

Run = Callable[..., "subprocess.CompletedProcess[str]"]
EMPTY = {"sequence_id": -1, "dlsn": "0:0:-1", "transaction_id": -1, "token": ""}
FIRST = {"sequence_id": 0, "dlsn": "0:0:0", "transaction_id": -1}


@pytest.fixture
def topic(ask: Run) -> Iterator[str]:
    """A topic of two partitions without records."""
    ask("topic", "create", "flights", "--partitions", 2)
    yield "flights"
    ask("topic", "delete", "flights")


@pytest.fixture
def native(inside: Run, broker: KafkaBroker) -> Run:
    """Runs a command in this process, aimed at the broker's native port; its output is JSON."""

    def run(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return inside(*arguments, "--output", "json", stdin=stdin, GNOMON_NATIVE_ADDRESS=broker.native_address)

    return run


def test_a_record_is_written_only_if_the_log_ends_as_expected(native: Run, ask: Run, topic: str) -> None:
    assert json.loads(native("position", topic).stdout) == EMPTY
    assert json.loads(native("write", topic, "--expect-empty", "--key", "k", stdin="one").stdout) == FIRST
    refused = native("write", topic, "--expect-empty", stdin="lost")
    assert (refused.returncode, json.loads(refused.stdout)) == (Exit.CONFLICT, FIRST)
    assert "nothing was written" in refused.stderr
    for condition, sequence_id in (
        (("--expect-sequence", 0), 1),
        (("--expect-dlsn", "0:1:0"), 2),
        (("--expect-sequence", 2, "--expect-dlsn", "0:2:0"), 3),
        ((), 4),
    ):
        written = native("write", topic, *condition, stdin=f"{sequence_id}\n")
        assert (written.returncode, json.loads(written.stdout)["sequence_id"]) == (Exit.OK, sequence_id)
    for condition in (("--expect-sequence", 3), ("--expect-sequence", 9), ("--expect-dlsn", "0:4:1")):
        assert native("write", topic, *condition, stdin="lost").returncode == Exit.CONFLICT
    lines = ask("consume", topic, "--from", "earliest", "--to", "end", "--format", "json").stdout.splitlines()
    assert [json.loads(line)["value"] for line in lines] == ["one", "1\n", "2\n", "3\n", "4\n"]
    assert json.loads(lines[0])["key"] == "k"


def test_a_partition_is_fenced(native: Run, topic: str) -> None:
    assert native("fence", topic, "one", "--expect-empty").returncode == Exit.OK
    assert json.loads(native("position", topic).stdout)["token"] == "one"
    assert native("write", topic, "--token", "one", stdin="0").returncode == Exit.OK
    assert native("fence", topic, "two", "--token", "one", "--expect-sequence", 0).returncode == Exit.OK
    refused = native("write", topic, "--token", "one", stdin="lost")
    assert (refused.returncode, json.loads(refused.stdout)) == (Exit.CONFLICT, {"token": "two"})
    refused = native("fence", topic, "three", "--expect-empty")
    assert (refused.returncode, json.loads(refused.stdout)["sequence_id"]) == (Exit.CONFLICT, 0)
    assert native("fence", topic, "--clear").returncode == Exit.OK
    assert json.loads(native("position", topic).stdout)["token"] == ""


def test_a_transaction_id_never_falls(native: Run, ask: Run, topic: str) -> None:
    assert native("write", topic, "--transaction-id", 7, stdin="0").returncode == Exit.USAGE
    ask("topic", "alter", topic, "--set", "gnomon.conditional.write=true")
    assert json.loads(native("write", topic, "--transaction-id", 7, stdin="0").stdout)["transaction_id"] == 7
    refused = native("write", topic, "--transaction-id", 6, stdin="lost")
    assert (refused.returncode, json.loads(refused.stdout)["transaction_id"]) == (Exit.CONFLICT, 7)
    assert native("write", topic, "--expect-transaction", 7, stdin="1").returncode == Exit.OK


def test_each_partition_has_its_own_end(native: Run, topic: str) -> None:
    assert native("write", topic, "--partition", 1, stdin="one").returncode == Exit.OK
    assert json.loads(native("position", topic).stdout) == EMPTY
    assert json.loads(native("position", topic, "--partition", 1).stdout) == {**FIRST, "token": ""}


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("write", "flights", "--expect-dlsn", "0:1"), Exit.USAGE, "write SEGMENT:ENTRY:SLOT"),
        (("write", "flights", "--expect-sequence", "-1"), Exit.USAGE, "--expect-sequence"),
        (("write", "flights", "--expect-empty", "--expect-sequence", "1"), Exit.USAGE, "a condition of its own"),
        (("write", "flights", "--partition", "7"), Exit.CONFLICT, "has 2 partitions"),
        (("write", "flights", "--token", "x" * 37), Exit.USAGE, "a fencing token has 1 to 36"),
        (("fence", "flights"), Exit.USAGE, "give a TOKEN, or --clear"),
        (("fence", "flights", "one", "--clear"), Exit.USAGE, "give a TOKEN, or --clear"),
        (("write", "none"), Exit.CONFLICT, "`gnomon topic list` shows all topics"),
        (("position", "none"), Exit.CONFLICT, "`gnomon topic list` shows all topics"),
    ],
)
def test_a_mistake_is_named(native: Run, topic: str, arguments: tuple[str, ...], code: Exit, text: str) -> None:
    failed = native(*arguments, stdin="lost")
    assert (failed.returncode, failed.stdout) == (code, "")
    assert text in failed.stderr


def test_a_value_that_is_too_large_is_not_cut(native: Run, topic: str) -> None:
    failed = native("write", topic, stdin="x" * ((16 << 20) + 1))
    assert failed.returncode == Exit.USAGE
    assert "write less at a time" in failed.stderr
