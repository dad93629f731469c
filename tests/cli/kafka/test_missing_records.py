"""Records that are missing in the middle of a partition, and the way on that docs/operating.md gives."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from gnomon.cli.kafka import consume
from gnomon.testing import KafkaBroker

Run = Callable[..., "subprocess.CompletedProcess[str]"]


SEGMENT_BYTES = 1_000_000


def lose_entry(bookie: Path, number: int) -> None:
    """Removes the entry of this number of the first ledger from the store of a bookie."""
    with lmdb.open(str(bookie), max_dbs=8) as environment, environment.begin(write=True) as transaction:
        entries = environment.open_db(b"entries", transaction)
        ledger, _ = struct.unpack(">QQ", next(transaction.cursor(entries).iternext(values=False)))
        assert transaction.delete(struct.pack(">QQ", ledger, number), db=entries)


def test_delete_records_moves_the_start_of_a_partition_beyond_missing_records(
    inside: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "ANSWER_SECONDS", 1.0)  # a reader waits for so long for its first record
    broker = KafkaBroker(data_dir=tmp_path / "data")

    def ask(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return inside(*arguments, stdin=stdin, GNOMON_BOOTSTRAP_SERVER=broker.bootstrap_servers)

    with broker:
        assert ask("topic", "create", "holed", "--config", f"segment.bytes={SEGMENT_BYTES}").returncode == 0
        for value in ("one", "two", "x" * SEGMENT_BYTES, "three"):
            assert ask("produce", "holed", stdin=f"{value}\n").returncode == 0
        broker.stop()
        lose_entry(tmp_path / "data" / "bookie", 1)
        broker.start()
        broken = ask("consume", "holed", "--to", "end", "--timeout", 1)
        assert broken.returncode != 0
        assert "three" not in broken.stdout
        done = ask("topic", "delete-records", "holed", "--before", 3)
        assert done.returncode == 0, done.stderr
        assert ask("produce", "holed", stdin="four\n").returncode == 0
        assert ask("consume", "holed", "--to", "end").stdout.split() == ["three", "four"]
