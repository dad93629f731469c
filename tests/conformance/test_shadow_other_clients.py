"""Clients with a toolchain of their own read shadows (`make conformance`); see test_other_clients.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from programs import run
from toolchains import tool

from gnomon.testing import KafkaBroker

HERE = Path(__file__).parent


def test_kafkas_java_client_reads_shadows(java: list[str], broker: KafkaBroker) -> None:
    lines = run([*java, str(HERE / "java" / "Conformance.java"), "shadow", broker.bootstrap_servers]).splitlines()
    assert lines == [
        "ok cast",
        "ok codecs",
        "ok eager",
        "ok cooperative",
        "ok look-ups",
        "ok resumed at 0",
        "ok refused",
    ]


def test_kafkas_console_tools_read_shadows(java: list[str], broker: KafkaBroker) -> None:
    at = ["--bootstrap-server", broker.bootstrap_servers]
    topics = [*java, "org.apache.kafka.tools.TopicCommand", *at]
    run([*topics, "--create", "--topic", "console-source", "--partitions", "3"])
    cast("console-source", "console-shadow", broker)
    described = run([*topics, "--describe", "--topic", "console-shadow"])
    assert "PartitionCount: 3" in described
    assert "gnomon.shadow.source=console-source" in described
    values = [f"value {number}" for number in range(50)]
    produce = [*java, "org.apache.kafka.tools.ConsoleProducer", *at, "--topic", "console-source"]
    run(produce, "\n".join(values) + "\n")
    consume = [*java, "org.apache.kafka.tools.consumer.ConsoleConsumer", *at, "--topic", "console-shadow"]
    came = run([*consume, "--group", "shadow", "--from-beginning", "--max-messages", "50", "--timeout-ms", "20000"])
    assert sorted(came.splitlines()) == sorted(values)

    groups = [*java, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *at, "--group", "shadow"]
    rows = [line.split() for line in run([*groups, "--describe"]).splitlines() if line.startswith("shadow")]
    assert {row[1] for row in rows} == {"console-shadow"}
    assert sum(int(row[3]) for row in rows) == sum(int(row[4]) for row in rows) == 50
    run([*groups, "--reset-offsets", "--to-earliest", "--topic", "console-shadow", "--execute"])
    rows = [line.split() for line in run([*groups, "--describe"]).splitlines() if line.startswith("shadow")]
    assert [int(row[3]) for row in rows] == [0, 0, 0]

    offsets = [*java, "org.apache.kafka.tools.GetOffsetShell", *at, "--topic"]
    of_shadow, of_source = (run([*offsets, topic]) for topic in ("console-shadow", "console-source"))
    assert of_shadow == of_source.replace("console-source", "console-shadow")
    configs = [*java, "kafka.admin.ConfigCommand", *at, "--entity-type", "topics", "--entity-name", "console-shadow"]
    assert "gnomon.shadow.source=console-source" in run([*configs, "--describe"])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_reads_shadows(broker: KafkaBroker, codec: str) -> None:
    kcat = [tool("kcat", "it is a Debian package"), "-b", broker.bootstrap_servers, "-q"]
    source, shadow = f"kcat-source-{codec}", f"kcat-shadow-{codec}"
    values = [f"key{number}:value {number}" for number in range(50)]
    run([*kcat, "-P", "-t", source, "-p", "0", "-K:", "-z", codec, "-X", "enable.idempotence=true"], "\n".join(values))
    cast(source, shadow, broker)
    came = run([*kcat, "-C", "-t", shadow, "-p", "0", "-o", "beginning", "-e", "-K:"])
    assert came.splitlines() == values
    came = run([*kcat, "-C", "-t", shadow, "-p", "0", "-o", "-5", "-e", "-K:"])
    assert came.splitlines() == values[-5:]
    grouped = ["-X", "auto.offset.reset=earliest", "-e", "-K:", "-G", shadow, shadow]
    assert sorted(run([*kcat, *grouped]).splitlines()) == sorted(values)
    assert f'topic "{shadow}" with 2 partitions' in run([*kcat, "-L", "-t", shadow])
    assert run([*kcat, "-Q", "-t", f"{shadow}:0:-1"]).split()[-1] == "50"


def cast(source: str, shadow: str, broker: KafkaBroker) -> None:
    """Creates a shadow by gnomon's command line: Kafka's own refuses configs that Kafka does not have."""
    gnomon = [sys.executable, "-m", "gnomon.cli.main"]
    run([*gnomon, "topic", "create-shadow", source, shadow, "--bootstrap-server", broker.bootstrap_servers])
