"""Clients that need a toolchain of their own (`make conformance`): each is skipped with a message if it is missing.

Each program tests its whole library: topics, codecs, a group of three that grows and shrinks, commits, and the group
after a kill of the broker. It ends with an error at the first wrong result.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from programs import go_program, node_program, run
from toolchains import tool

from gnomon.testing import KafkaBroker

HERE = Path(__file__).parent


def run_around_a_kill(command: Sequence[str], broker: KafkaBroker) -> list[str]:
    """The lines that the program prints before a kill of the broker and after its restart."""
    first = run([*command, "first", broker.bootstrap_servers])
    broker.kill()
    broker.start()
    return (first + run([*command, "second", broker.bootstrap_servers])).splitlines()


def test_kafkas_java_client(java: list[str], own_broker: KafkaBroker) -> None:
    lines = run_around_a_kill([*java, str(HERE / "java" / "Conformance.java")], own_broker)
    assert lines == [
        *("ok topics", "ok codecs", "ok eager", "ok cooperative", "ok records", "ok transactions"),
        *("ok modern groups", "ok directories"),
        *("ok resumed at 0", "ok resumed at 50", "ok resumed at 90", "ok reset"),
    ]


def test_kafkas_console_tools(java: list[str], broker: KafkaBroker) -> None:
    at = ["--bootstrap-server", broker.bootstrap_servers]
    topics = [*java, "org.apache.kafka.tools.TopicCommand", *at]
    run([*topics, "--create", "--topic", "console", "--partitions", "2", "--config", "retention.ms=60000"])
    assert "console" in run([*topics, "--list"]).split()
    described = run([*topics, "--describe", "--topic", "console"])
    assert "PartitionCount: 2" in described
    assert "retention.ms=60000" in described
    run([*topics, "--alter", "--topic", "console", "--partitions", "3"])
    assert "PartitionCount: 3" in run([*topics, "--describe", "--topic", "console"])

    configs = [*java, "kafka.admin.ConfigCommand", *at, "--entity-type", "topics", "--entity-name", "console"]
    run([*configs, "--alter", "--add-config", "retention.ms=120000"])
    assert "retention.ms=120000" in run([*configs, "--describe"])
    brokers = [*java, "kafka.admin.ConfigCommand", *at, "--entity-type", "brokers", "--entity-name", "1"]
    assert "num.partitions=" in run([*brokers, "--describe", "--all"])
    run([*brokers, "--alter", "--add-config", "num.io.threads=16,log.cleaner.threads=2"])
    assert "num.io.threads=16" in run([*brokers, "--describe"])

    values = [f"value {number}" for number in range(50)]
    produce = [*java, "org.apache.kafka.tools.ConsoleProducer", *at, "--topic", "console"]
    run(produce, "\n".join(values) + "\n")
    consume = [*java, "org.apache.kafka.tools.consumer.ConsoleConsumer", *at, "--topic", "console"]
    came = run([*consume, "--group", "console", "--from-beginning", "--max-messages", "50", "--timeout-ms", "20000"])
    assert sorted(came.splitlines()) == sorted(values)

    groups = [*java, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *at, "--group", "console"]
    rows = [line.split() for line in run([*groups, "--describe"]).splitlines() if line.startswith("console")]
    assert sum(int(row[3]) for row in rows) == 50
    run([*groups, "--reset-offsets", "--to-earliest", "--topic", "console", "--execute"])
    rows = [line.split() for line in run([*groups, "--describe"]).splitlines() if line.startswith("console")]
    assert [int(row[3]) for row in rows] == [0, 0, 0]
    run([*groups, "--delete"])
    assert "Group console not found" in run([*groups, "--describe"])

    directories = run([*java, "org.apache.kafka.tools.LogDirsCommand", *at, "--describe", "--topic-list", "console"])
    (described,) = [json.loads(line) for line in directories.splitlines() if line.startswith("{")]
    (logs,) = zip(*(broker["logDirs"] for broker in described["brokers"]), strict=True)
    assert {log["error"] for log in logs} == {None}
    partitions = [partition for log in logs for partition in log["partitions"]]
    assert len(partitions) == 3
    assert sum(partition["size"] for partition in partitions) > len("".join(values))
    run([*topics, "--delete", "--topic", "console"])
    assert "console" not in run([*topics, "--list"]).split()


def test_franz_go(own_broker: KafkaBroker) -> None:
    lines = run_around_a_kill([go_program(".")], own_broker)
    assert lines == [
        *("ok topics", "ok codecs", "ok eager", "ok cooperative", "ok transactions", "ok resumed at 0"),
        *("ok resumed at 50", "ok reset"),
    ]


def test_kafkajs(own_broker: KafkaBroker) -> None:
    lines = run_around_a_kill(node_program("conformance.js"), own_broker)
    assert lines == [
        *("ok topics", "ok codecs", "ok eager", "ok transactions", "ok resumed at 0"),
        *("ok resumed at 50", "ok reset"),
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat(broker: KafkaBroker, codec: str) -> None:
    kcat = [tool("kcat", "it is a Debian package"), "-b", broker.bootstrap_servers, "-q"]
    topic = f"kcat-{codec}"
    values = [f"key{number}:value {number}" for number in range(50)]
    run([*kcat, "-P", "-t", topic, "-p", "0", "-K:", "-z", codec, "-X", "enable.idempotence=true"], "\n".join(values))
    came = run([*kcat, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-K:"])
    assert came.splitlines() == values
    came = run([*kcat, "-C", "-t", topic, "-p", "0", "-o", "-5", "-e", "-K:"])
    assert came.splitlines() == values[-5:]
    grouped = ["-X", "auto.offset.reset=earliest", "-e", "-K:", "-G", topic, topic]
    assert sorted(run([*kcat, *grouped]).splitlines()) == sorted(values)
    assert f'topic "{topic}" with 2 partitions' in run([*kcat, "-L", "-t", topic])
