"""`gnomon kv`, against a broker process that tests share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gnomon.cli.exit import Exit
from gnomon.testing import KafkaBroker

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def table(ask: Run) -> Iterator[str]:
    """An empty table."""
    ask("kv", "create", "settings")
    yield "settings"
    ask("topic", "delete", "settings")


@pytest.fixture
def kv(inside: Run, broker: KafkaBroker) -> Run:
    """Runs `gnomon kv` in this process, aimed at the broker's native port."""

    def run(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return inside("kv", *arguments, stdin=stdin, GNOMON_NATIVE_ADDRESS=broker.native_address)

    return run


def shown(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == Exit.OK, done.stderr
    return json.loads(done.stdout)


def test_a_value_is_shown_as_it_was_put(kv: Run, table: str) -> None:
    assert shown(kv("put", table, "a", "1", "--output", "json")) == {"revision": 0}
    assert shown(kv("put", table, "a", "--output", "json", stdin="from a pipe\n")) == {"revision": 1}
    assert shown(kv("get", table, "a", "--output", "json")) == {
        "key": "a",
        "value": "from a pipe\n",
        "revision": 1,
        "create_revision": 0,
        "version": 2,
        "expires_ms": None,
        "partition": 0,
    }
    assert "from a pipe" in kv("get", table, "a", "--stale").stdout
    assert kv("delete", table, "a").returncode == Exit.OK
    for command in (("get", table, "a"), ("delete", table, "a")):
        absent = kv(*command)
        assert (absent.returncode, absent.stdout) == (Exit.CONFLICT, "")
        assert "'a' is absent in table 'settings'" in absent.stderr


def test_a_comparison_that_fails_exits_with_5(kv: Run, table: str) -> None:
    assert kv("put", table, "a", "1", "--revision", "-1").returncode == Exit.OK
    for command in (
        ("put", table, "a", "2", "--revision", "-1"),
        ("put", table, "a", "2", "--revision", "7"),
        ("cas", table, "a", "2"),
        ("cas", table, "a", "2", "--expected", "0"),
        ("delete", table, "a", "--revision", "7"),
    ):
        refused = kv(*command)
        assert refused.returncode == Exit.CONFLICT
        assert "b'a' has revision 0 in table 'settings'" in refused.stderr
    assert kv("cas", table, "a", "2", "--expected", "1").returncode == Exit.OK
    assert kv("put", table, "a", "3", "--revision", "1", "--ttl-seconds", "100").returncode == Exit.OK


def test_numbers_are_added(kv: Run, table: str) -> None:
    assert shown(kv("incr", table, "n", "--output", "json")) == {"value": 1}
    assert shown(kv("incr", table, "n", "--by", "-8", "--output", "json")) == {"value": -7}
    kv("put", table, "text", "x")
    assert kv("incr", table, "text").returncode == Exit.USAGE


def test_a_transaction_shows_the_answers_of_the_branch_that_was_done(kv: Run, table: str, tmp_path: Path) -> None:
    kv("put", table, "leader", "one")
    file = tmp_path / "taken over.json"
    document = {
        "compare": [["value", "leader", "==", "one"], ["version", "visits", "==", 0]],
        "then": [["put", "leader", "two words", 100], ["incr", "visits", 5], ["get", "leader"], ["delete", "absent"]],
        "otherwise": [["get", "leader"], ["get", "absent"]],
    }
    file.write_text(json.dumps(document))
    done = shown(kv("txn", table, file, "--output", "json"))
    names = ("operation", "key", "value", "revision", "create_revision", "version", "expires_ms")
    expires_ms = done["answers"][2]["expires_ms"]
    assert done == {
        "succeeded": True,
        "revision": 2,
        "answers": [
            dict(zip(names, ("put", "leader", None, 1, None, None, None), strict=True)),
            dict(zip(names, ("incr", "visits", 5, None, None, None, None), strict=True)),
            dict(zip(names, ("get", "leader", "two words", 1, 0, 2, expires_ms), strict=True)),
            dict(zip(names, ("delete", "absent", None, -1, None, None, None), strict=True)),
        ],
    }
    assert type(expires_ms) is int
    undone = kv("txn", table, "-", "--output", "json", stdin=json.dumps(document))
    assert (undone.returncode, "a comparison does not hold" in undone.stderr) == (Exit.CONFLICT, True)
    assert json.loads(undone.stdout) == {
        "succeeded": False,
        "revision": -1,
        "answers": [
            dict(zip(names, ("get", "leader", "two words", 1, 0, 2, expires_ms), strict=True)),
            dict(zip(names, ("get", "absent", None, -1, -1, 0, None), strict=True)),
        ],
    }
    assert "two words" in kv("txn", table, stdin=json.dumps({"then": [["get", "leader"]]})).stdout


def test_a_transaction_takes_and_shows_bytes_as_base64(kv: Run, table: str) -> None:
    document = {"compare": [["value", "/wA=", "==", None]], "then": [["put", "/wA=", "gIE="], ["get", "/wA="]]}
    done = shown(kv("txn", table, "--base64", "--output", "json", stdin=json.dumps(document)))
    assert [(answer["key"], answer["value"]) for answer in done["answers"]] == [("/wA=", None), ("/wA=", "gIE=")]


def test_a_document_that_is_no_transaction_is_refused_with_the_place_of_the_mistake(
    kv: Run, table: str, tmp_path: Path
) -> None:
    refused = kv("txn", table, stdin='{"then": [["get", "a"], ["put", "a"]]}')
    assert (refused.returncode, refused.stdout) == (Exit.USAGE, "")
    assert 'standard input: then[1]: ["put", "a"] is no operation: write ["put", KEY, VALUE]' in refused.stderr
    file = tmp_path / "broken.json"
    file.write_text("{}")
    assert "1 to 1000 operations and comparisons, not 0" in kv("txn", table, file).stderr
    file.write_text('{"then":\n  [}')
    refused = kv("txn", table, file)
    assert (refused.returncode, f"{file}: it is no JSON" in refused.stderr) == (Exit.USAGE, True)
    assert "line 2 column 4" in refused.stderr
    assert kv("txn", table, tmp_path / "absent.json").returncode == Exit.USAGE
    assert kv("history", table).stdout == ""


def test_keys_are_listed_in_their_order(kv: Run, table: str) -> None:
    for key in ("b", "a2", "a1", "c"):
        kv("put", table, key, f"of {key}")
    assert [row["key"] for row in shown(kv("scan", table, "--output", "json"))] == ["a1", "a2", "b", "c"]
    assert [row["value"] for row in shown(kv("scan", table, "a", "--output", "json"))] == ["of a1", "of a2"]
    page = kv("scan", table, "--limit", 2, "--after", "a1", "--keys-only", "--output", "json")
    assert [row["key"] for row in shown(page)] == ["a2", "b"]
    assert "there are more: --after 'b'" in page.stderr


def test_bytes_that_are_no_text_are_base64(kv: Run, table: str) -> None:
    assert kv("put", table, "/wA=", "gIE=", "--base64").returncode == Exit.OK
    assert shown(kv("get", table, "/wA=", "--base64", "--output", "json"))["value"] == "gIE="
    assert shown(kv("scan", table, "--output", "json"))[0]["key"] == "\\xff\x00"
    refused = kv("get", table, "no base64", "--base64")
    assert (refused.returncode, "is no base64" in refused.stderr) == (Exit.USAGE, True)


def test_the_history_shows_every_change(kv: Run, table: str) -> None:
    assert kv("history", table).stdout == ""
    for change in (("put", table, "a", "1"), ("put", table, "b", "2"), ("delete", table, "a")):
        kv(*change)
    assert kv("history", table).stdout.splitlines() == ["0\t0\tput\ta\t1", "0\t1\tput\tb\t2", "0\t2\tdelete\ta"]
    assert kv("history", table, "b").stdout.splitlines() == ["0\t1\tput\tb\t2"]


def test_a_watch_shows_values_and_changes(broker: KafkaBroker, kv: Run, table: str) -> None:
    kv("put", table, "a", "1")
    command = [sys.executable, "-m", "gnomon.cli.main", "kv", "watch", table, "--native-address", broker.native_address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == "0\t0\tcurrent\ta\t1\n"
        kv("put", table, "a", "2")
        assert watching.stdout.readline() == "0\t1\tput\ta\t2\n"
        watching.terminate()


def test_an_ordinary_topic_is_no_table(kv: Run, ask: Run) -> None:
    ask("topic", "create", "plain")
    refused = kv("get", "plain", "a")
    assert (refused.returncode, "is no table" in refused.stderr) == (Exit.FAILED, True)
    ask("topic", "delete", "plain")


def test_gnomon_produce_places_keys_as_tables_do(kv: Run, ask: Run) -> None:
    ask("kv", "create", "produced", "--partitions", 3)
    lines = "".join(f"k{number}:v{number}\n" for number in range(20))
    assert ask("produce", "produced", "--key-separator", ":", stdin=lines).returncode == 0
    values = [shown(kv("get", "produced", f"k{number}", "--output", "json"))["value"] for number in range(20)]
    assert ask("topic", "delete", "produced").returncode == 0  # other tests list the tables of this broker
    assert values == [f"v{number}" for number in range(20)]
