"""Conditional writes by header, with clients that need a toolchain of their own; see test_conditional_writes.py."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from conditional_writes import EXPECTED, MESSAGE, create_conditional_topic
from programs import Program, go_program, node_program
from refused_batches import Refusal, note_refusal, produced, refusal_of, values
from toolchains import tool

from gnomon.testing import KafkaBroker

from families.program import FRANZ_GO, JAVA, KAFKAJS

HERE = Path(__file__).parent

with_and_without = pytest.mark.parametrize("idempotent", [False, True])


def refused(command: Sequence[str], broker: KafkaBroker, topic: str, idempotent: bool) -> Refusal:
    """Runs the program with these arguments; what its producer makes of a refusal."""
    create_conditional_topic(broker.bootstrap_servers, topic)
    with Program([*command, json.dumps(idempotent), broker.bootstrap_servers, topic]) as program:
        assert program.step() is None
        refusal = refusal_of(program.step, program.step, lambda: produced(broker))
    written = [b"first", b"next"] if refusal.goes_on else [b"first"]
    assert values(broker.bootstrap_servers, topic) == written
    assert len(refusal.errors) == 3
    return refusal


@with_and_without
def test_kafkas_java_client(
    java: list[str], broker: KafkaBroker, topic: str, idempotent: bool, pytestconfig: pytest.Config
) -> None:
    refusal = refused([*java, str(HERE / "java" / "ConditionalWrites.java")], broker, topic, idempotent)
    note_refusal(pytestconfig, JAVA, idempotent, refusal)
    assert refusal.shows(MESSAGE)
    assert refusal.goes_on


@with_and_without
def test_franz_go(broker: KafkaBroker, topic: str, idempotent: bool, pytestconfig: pytest.Config) -> None:
    refusal = refused([go_program("./conditional")], broker, topic, idempotent)
    note_refusal(pytestconfig, FRANZ_GO, idempotent, refusal)
    assert not refusal.shows(MESSAGE)
    assert refusal.goes_on


@with_and_without
def test_kafkajs(broker: KafkaBroker, topic: str, idempotent: bool, pytestconfig: pytest.Config) -> None:
    refusal = refused(node_program("conditional_writes.js"), broker, topic, idempotent)
    note_refusal(pytestconfig, KAFKAJS, idempotent, refusal)
    assert not refusal.shows(MESSAGE)
    assert refusal.goes_on


@with_and_without
def test_kcat(broker: KafkaBroker, topic: str, idempotent: bool) -> None:
    create_conditional_topic(broker.bootstrap_servers, topic)
    kcat = [tool("kcat", "it is a Debian package"), "-b", broker.bootstrap_servers, "-P", "-t", topic, "-p", "0"]
    kcat += ["-X", f"enable.idempotence={json.dumps(idempotent)}", "-H"]
    subprocess.run([*kcat, f"{EXPECTED}=0"], input="first", text=True, check=True, timeout=60)
    before = produced(broker)
    done = subprocess.run([*kcat, f"{EXPECTED}=9"], input="refused", text=True, capture_output=True, timeout=60)
    assert produced(broker) - before == 1
    assert done.returncode == 1
    assert "Broker failed to validate record" in done.stderr
    assert values(broker.bootstrap_servers, topic) == [b"first"]
