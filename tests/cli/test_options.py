from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

NUMBERS = [
    ("produce t --partition", 1 << 31),
    ("consume t --partition", 1 << 31),
    ("consume t --from", 1 << 63),
    ("consume t --count", 1 << 63),
    ("topic create t --partitions", 1 << 31),
    ("topic alter t --partitions", 1 << 31),
    ("topic delete-records t --before 1 --partition", 1 << 31),
    ("topic delete-records t --before", 1 << 63),
    ("group reset-offsets g --topic t --to-latest --partition", 1 << 31),
    ("group reset-offsets g --topic t --to-offset", 1 << 63),
    ("group reset-offsets g --topic t --shift-by", 1 << 63),
    ("ledger read l --from", 1 << 63),
    ("ledger read l --to", 1 << 63),
    ("ledger tail l --from", 1 << 63),
    ("ledger create l --ensemble-size", 1 << 63),
    ("ledger shrink l", 1 << 63),
    ("broker --id", 1 << 31),
    ("broker --kafka-port", 1 << 16),
    ("cluster up --kafka-port", 1 << 16),
    ("standalone --admin-port", 1 << 16),
]
NAMED = [
    "produce",
    "consume",
    "consume t --group",
    "topic create",
    "topic describe",
    "topic alter",
    "topic stats",
    "topic delete",
    "topic truncate",
    "topic delete-records --before 1",
    "topic create-shadow t",
    "group describe",
    "group delete",
    "group reset-offsets g --topic",
    "ledger create",
    "ledger show",
    "ledger read",
    "ledger delete",
    "bookie decommission",
    "topic list --bootstrap-server",
    "produce t --key-separator",
]


@pytest.mark.parametrize(("command", "number"), NUMBERS)
def test_a_number_out_of_range_is_refused_with_the_range(inside: Run, command: str, number: int) -> None:
    for given in (number, 10**30):
        done = inside(*command.split(), given)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "is not in the range" in done.stderr


@pytest.mark.parametrize("command", NAMED)
@pytest.mark.parametrize(("name", "problem"), [("", "is empty"), ("a\udcff", "is not UTF-8")])
def test_a_name_that_is_empty_or_not_utf_8_is_refused(inside: Run, command: str, name: str, problem: str) -> None:
    done = inside(*command.split(), name)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert f": {name!r} {problem}" in done.stderr or f": {problem}" in done.stderr


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "1e300"])
@pytest.mark.parametrize("command", ["produce", "consume"])
def test_an_invalid_timeout_is_refused(inside: Run, command: str, seconds: str) -> None:
    done = inside(command, "t", "--timeout", seconds)
    assert (done.returncode, done.stdout) == (2, "")
    assert "'--timeout'" in done.stderr


@pytest.mark.parametrize("option", ["produce t --header", "topic create t --config", "ledger create l --property"])
def test_a_pair_that_is_not_utf_8_is_refused(inside: Run, option: str) -> None:
    done = inside(*option.split(), "a=\udcff")
    assert (done.returncode, "is not UTF-8" in done.stderr) == (2, True), done.stderr


def test_an_impossible_address_is_refused_or_unreachable(inside: Run) -> None:
    assert inside("topic", "list", "--bootstrap-server", "127.0.0.1:65536").returncode == 2
    odd = inside("topic", "list", "--bootstrap-server", "a..b:9092")
    assert (odd.returncode, "'a..b' is no host name" in odd.stderr) == (3, True)
