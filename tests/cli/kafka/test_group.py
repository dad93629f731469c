from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer

from gnomon.testing import KafkaBroker

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def moved(ask: Run, *arguments: object) -> list[dict[str, Any]]:
    done = ask("group", "reset-offsets", "readers", "--topic", "lines", *arguments, "--output", "json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


@pytest.fixture(scope="module")
def lines(gnomon: Run, broker: KafkaBroker) -> str:
    """A topic of one partition with ten records, of which the group `readers` has read four."""
    where = {"GNOMON_BOOTSTRAP_SERVER": broker.bootstrap_servers}
    gnomon("topic", "create", "lines", "--partitions", 1, **where)
    gnomon("produce", "lines", stdin="".join(f"{number}\n" for number in range(10)), **where)
    done = gnomon("consume", "lines", "--group", "readers", "--count", 4, "--timeout", 20, **where)
    assert done.stdout == "0\n1\n2\n3\n", done.stderr
    return "lines"


def test_a_group_shows_its_offsets_and_lag(ask: Run, lines: str) -> None:
    assert {"group": "readers", "state": "empty", "type": "classic"} in json.loads(
        ask("group", "list", "--output", "json").stdout
    )
    moved(ask, "--to-offset", 4)
    found = json.loads(ask("group", "describe", "readers", "--output", "json").stdout)
    assert found["state"] == "empty"
    assert found["offsets"] == [{"topic": lines, "partition": 0, "committed": 4, "end": 10, "lag": 6}]


def test_a_reset_moves_offsets_to_the_given_target(ask: Run, lines: str) -> None:
    moved(ask, "--to-offset", 4)
    assert moved(ask, "--to-latest", "--dry-run") == [{"topic": lines, "partition": 0, "before": 4, "after": 10}]
    assert moved(ask, "--shift-by", -1) == [{"topic": lines, "partition": 0, "before": 4, "after": 3}]
    assert moved(ask, "--to-datetime", "2020-01-01T00:00:00Z")[0]["after"] == 0
    assert moved(ask, "--to-datetime", "1969-12-31T23:59:59.999Z")[0]["after"] == 0
    assert moved(ask, "--to-datetime", "2100-01-01")[0]["after"] == 10
    assert moved(ask, "--to-offset", 99)[0]["after"] == 10
    assert moved(ask, "--to-earliest", "--partition", 0)[0] == {
        "topic": lines,
        "partition": 0,
        "before": 10,
        "after": 0,
    }


def test_a_group_with_members_keeps_its_offsets(ask: Run, lines: str, broker: KafkaBroker) -> None:
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "busy", "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    try:
        consumer.subscribe([lines])
        assert consumer.poll(20) is not None
        (member,) = json.loads(ask("group", "describe", "busy", "--output", "json").stdout)["members"]
        assert member["assigned"] == ["lines-0"]
        assert ask("group", "reset-offsets", "busy", "--topic", lines, "--to-earliest").returncode == 5
        assert ask("group", "delete", "busy").returncode == 5
    finally:
        consumer.close()
    assert ask("group", "delete", "busy", "busy").returncode == 0


def test_a_missing_group_or_topic_ends_with_5(ask: Run, lines: str) -> None:
    assert ask("group", "describe", "nobody").returncode == 5
    assert ask("group", "delete", "nobody").returncode == 5
    assert ask("group", "reset-offsets", "nobody", "--topic", "nope", "--to-latest").returncode == 5
    absent = ask("group", "reset-offsets", "nobody", "--topic", lines, "--partition", 99, "--to-earliest")
    assert (absent.returncode, "has no partition 99: it has 0 to" in absent.stderr) == (5, True)
    assert ask("group", "reset-offsets", "nobody", "--topic", lines, "--shift-by", 1).returncode == 5


def test_a_reset_of_an_unknown_group_reports_that_the_group_is_new(ask: Run, lines: str) -> None:
    reset = ("group", "reset-offsets", "raeders", "--topic", lines, "--to-offset", 3)
    assert ask(*reset, "--dry-run").stderr.splitlines() == [
        "group 'raeders' has no offsets and no members: it would be new",
        "nothing was changed: leave out --dry-run to do it",
    ]
    assert ask("group", "describe", "raeders").returncode == 5
    assert ask(*reset).stderr == "group 'raeders' had no offsets and no members: it is new\n"
    assert ask(*reset).stderr == ""
    assert ask("group", "delete", "raeders").returncode == 0


def test_a_reset_needs_exactly_one_target(inside: Run) -> None:
    reset = ("group", "reset-offsets", "g", "--topic", "t")
    assert inside(*reset).returncode == 2
    assert inside(*reset, "--to-latest", "--to-earliest").returncode == 2
    assert inside(*reset, "--to-datetime", "yesterday").returncode == 2
