"""`gnomon subscription`, against a broker process that tests share."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest
from click.shell_completion import ShellComplete

import gnomon
from gnomon.cli.main import main
from gnomon.testing import KafkaBroker

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def topic(ask: Run) -> Iterator[str]:
    """A topic of two partitions with six records, three of them in each."""
    ask("topic", "create", "flights", "--partitions", 2)
    for partition in (0, 1):
        ask("produce", "flights", "--partition", partition, stdin="one\ntwo\nthree\n")
    yield "flights"
    ask("topic", "delete", "flights")


@pytest.fixture
def native(inside: Run, broker: KafkaBroker) -> Run:
    """Runs `gnomon subscription` in this process, aimed at the broker."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return inside("subscription", *arguments, GNOMON_NATIVE_ADDRESS=broker.native_address)

    return run


def subscribe(broker: KafkaBroker, *names: str) -> None:
    """Creates subscriptions without consumers, which have read nothing."""
    with gnomon.connect_blocking(broker.native_address) as client:
        for name in names:
            client.subscribe("flights", name, initial_position="earliest").close()


def test_subscriptions_are_listed_described_moved_and_deleted(native: Run, broker: KafkaBroker, topic: str) -> None:
    subscribe(broker, "billing", "audit")
    for listed in (native("list"), native("list", topic)):
        assert [line.split() for line in listed.stdout.splitlines()] == [
            ["TOPIC", "SUBSCRIPTION", "TYPE", "CONSUMERS", "BACKLOG", "RECORDS", "PARTITIONS"],
            ["flights", "audit", "-", "0", "6", "2"],
            ["flights", "billing", "-", "0", "6", "2"],
        ]

    moved = native("seek", topic, "billing", "--to-offset", 2, "--partition", 1, "--output", "json")
    assert json.loads(moved.stdout) == [{"topic": "flights", "partition": 1, "before": 0, "after": 2}]

    described = json.loads(native("describe", topic, "billing", "--output", "json").stdout)
    assert (described["backlog_records"], described["type"], described["consumers"]) == (4, None, [])
    assert [(at["partition"], at["offset"], at["end"]) for at in described["partitions"]] == [(0, 0, 3), (1, 2, 3)]
    assert 0 < described["partitions"][1]["backlog_bytes"] < described["partitions"][0]["backlog_bytes"]

    for target, offsets in (("--to-latest", [3, 3]), ("--to-earliest", [0, 0]), ("--to-datetime=2100-01-01", [3, 3])):
        moved = native("seek", topic, "billing", target, "--output", "json")
        assert [row["after"] for row in json.loads(moved.stdout)] == offsets, moved.stderr

    deleted = native("delete", topic, "billing", "audit")
    assert (deleted.returncode, deleted.stdout) == (0, "")
    assert json.loads(native("list", topic, "--output", "json").stdout) == []


def test_a_subscription_in_use_shows_its_consumers_and_is_not_deleted(
    native: Run, broker: KafkaBroker, topic: str
) -> None:
    with gnomon.connect_blocking(broker.native_address) as client:
        client.subscribe(topic, "billing", type="key_shared")
        described = json.loads(native("describe", topic, "billing", "--output", "json").stdout)
        assert described["type"] == "key_shared"
        assert [row["partition"] for row in described["consumers"]] == [0, 1]
        refused = native("delete", topic, "billing")
        assert (refused.returncode, refused.stderr) == (
            5,
            "Error: subscription 'billing' has consumers: close them first\n",
        )


def test_what_is_missing_ends_with_5_and_names_the_command_that_shows_what_is_there(native: Run, topic: str) -> None:
    for missing in (("describe", topic, "nope"), ("seek", topic, "nope", "--to-latest"), ("delete", topic, "nope")):
        done = native(*missing)
        assert (done.returncode, done.stdout, done.stderr) == (
            5,
            "",
            "Error: topic 'flights' has no subscription 'nope': `gnomon subscription list` shows all subscriptions\n",
        )
    nothing = native("list", "nothing")
    assert (nothing.returncode, nothing.stderr) == (
        5,
        "Error: topic 'nothing' does not exist: `gnomon topic list` shows all topics\n",
    )


def test_a_seek_needs_one_place_and_a_partition_that_exists(native: Run, broker: KafkaBroker, topic: str) -> None:
    subscribe(broker, "billing")
    for wrong in ((), ("--to-latest", "--to-earliest"), ("--to-latest", "--partition", 7), ("--to-datetime", "soon")):
        done = native("seek", topic, "billing", *wrong)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr


def test_a_broker_that_does_not_answer_ends_with_3_at_once(inside: Run) -> None:
    done = inside("subscription", "list", "--native-address", "127.0.0.1:1")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "see --native-address" in done.stderr


def test_the_shell_completes_subscriptions_of_the_topic(inside: Run, broker: KafkaBroker, topic: str) -> None:
    subscribe(broker, "billing", "audit")
    shell = ShellComplete(main, {}, "gnomon", "_GNOMON_COMPLETE")
    inside("profile", "create", "here", "--native-address", broker.native_address)
    for command in ("describe", "seek", "delete"):
        found = shell.get_completions(["subscription", command, "--profile", "here", topic], "b")
        assert [item.value for item in found] == ["billing"]
    at = ["--native-address", broker.native_address]
    assert shell.get_completions(["subscription", "delete", *at, topic, "audit"], "a") == []
    assert shell.get_completions(["subscription", "describe", *at, "there-is-none"], "") == []
    assert shell.get_completions(["subscription", "describe", "--native-address", "127.0.0.1:1", topic], "") == []
