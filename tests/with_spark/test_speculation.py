"""A standalone cluster of Spark with speculation: two attempts at one task run at the same time, on two workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from numbered_topic import NumberedTopic
from toolchains import tool

import gnomon
from gnomon.testing import KafkaBroker

RECORDS = 3_000
PARTITIONS = 4
PROGRAM = Path(__file__).with_name("speculating.py")
PROGRAM_SECONDS = 200


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


def test_a_stream_with_speculative_attempts_writes_each_row_once(broker: KafkaBroker, tmp_path: Path) -> None:
    tool("java", "Spark needs Java 17")
    pytest.importorskip("pyspark", reason="pip install 'gnomon[spark]'")
    from spark_cluster import SparkCluster

    source = NumberedTopic(broker.bootstrap_servers, "speculated", PARTITIONS)
    target = NumberedTopic(broker.bootstrap_servers, "speculated.copy", PARTITIONS)
    source.produce(RECORDS)
    paths = [str(Path(gnomon.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SPARK_LOCAL_IP": "127.0.0.1"}
    with SparkCluster(tmp_path) as cluster:
        names = [cluster.master, source.servers, source.name, target.name, str(tmp_path)]
        command = [sys.executable, str(PROGRAM), *names]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PROGRAM_SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "0-0").exists()
    assert (tmp_path / "0-1").exists(), "no attempt was speculative"
    found = target.read(RECORDS + 1)
    assert sorted(int(value or b"") for _, _, value, _ in found) == list(range(RECORDS))
    for partition in range(PARTITIONS):
        numbers = [int(value or b"") for at, _, value, _ in found if at == partition]
        assert numbers == sorted(numbers)
