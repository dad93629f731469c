"""`gnomon kv list`, `export` and `import`, against a broker process that tests share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gnomon.cli.exit import Exit
from gnomon.client.blocking import connect_blocking
from gnomon.client.errors import ImportIncomplete, Unavailable
from gnomon.client.tables.table import Table
from gnomon.testing import KafkaBroker

Run = Callable[..., "subprocess.CompletedProcess[str]"]
TABLES = [("copy", "memory", 3), ("settings", "disk", 2)]


@pytest.fixture
def kv(inside: Run, broker: KafkaBroker) -> Run:
    """Runs `gnomon kv` in this process, aimed at the broker's native port."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return inside("kv", *arguments, GNOMON_NATIVE_ADDRESS=broker.native_address)

    return run


@pytest.fixture
def tables(ask: Run) -> Iterator[None]:
    for name, engine, partitions in TABLES:
        ask("kv", "create", name, "--engine", engine, "--partitions", partitions)
    yield
    ask("topic", "delete", *(name for name, _, _ in TABLES))


def test_a_table_goes_through_a_file(tables: None, kv: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.kv"
    assert json.loads(kv("list", "--output", "json").stdout) == [
        {"name": name, "engine": engine, "partitions": partitions} for name, engine, partitions in TABLES
    ]
    for number in range(5):
        kv("put", "settings", f"k{number}", number)
    exported = kv("export", "settings", path, "--output", "json")
    assert exported.returncode == Exit.OK, exported.stderr
    status = json.loads(kv("status", "settings", "--digest", "--output", "json").stdout)
    rows = json.loads(exported.stdout)
    assert [(row["revision"], row["digest"]) for row in rows] == [(row["revision"], row["digest"]) for row in status]

    again = kv("export", "settings", path)
    assert (again.returncode, f"{path} exists: give --overwrite to replace it" in again.stderr) == (Exit.CONFLICT, True)
    assert kv("export", "settings", path, "--overwrite").returncode == Exit.OK

    damaged = tmp_path / "damaged"
    damaged.write_bytes(path.read_bytes()[:-1])
    refused = kv("import", "copy", damaged)
    assert refused.returncode == Exit.FAILED
    assert "nothing was imported: the file is cut off" in refused.stderr
    assert kv("import", "copy", tmp_path / "absent").returncode == Exit.FAILED

    async def fails(table: Table, path: Path) -> None:
        raise ImportIncomplete("has a part") from Unavailable("no leader")

    with monkeypatch.context() as patch:
        patch.setattr(Table, "import_from", fails)
        assert kv("import", "copy", path).returncode == Exit.UNREACHABLE

    imported = kv("import", "copy", path, "--output", "json")
    assert json.loads(imported.stdout) == {"keys": 5, "left_out": 0, "expired": 0}
    assert json.loads(kv("get", "copy", "k3", "--output", "json").stdout)["value"] == "3"
    full = kv("import", "copy", path)
    assert (full.returncode, "table 'copy' has 5 keys" in full.stderr) == (Exit.CONFLICT, True)


def test_a_table_goes_through_a_pipe(tables: None, kv: Run, broker: KafkaBroker) -> None:
    kv("put", "settings", "a", "1")
    command = [sys.executable, "-m", "gnomon.cli.main", "kv"]
    address = ["--native-address", broker.native_address]
    with subprocess.Popen([*command, "export", "settings", "-", *address], stdout=subprocess.PIPE) as exporting:
        imported = subprocess.run(
            [*command, "import", "copy", "-", "--output", "json", *address],
            stdin=exporting.stdout,
            capture_output=True,
            timeout=60,
        )
    assert (exporting.returncode, imported.returncode) == (Exit.OK, Exit.OK)
    assert json.loads(imported.stdout)["keys"] == 1


def test_a_blocking_client_moves_a_table_through_a_file(
    tables: None, kv: Run, broker: KafkaBroker, tmp_path: Path
) -> None:
    kv("put", "settings", "a", "1")
    with connect_blocking(broker.native_address) as client:
        assert [each.name for each in client.tables()] == ["copy", "settings"]
        exported = client.table("settings").export_to(tmp_path / "file")
        assert sum(each.keys for each in exported.partitions) == 1
        assert client.table("copy").import_from(tmp_path / "file").keys == 1


def test_standard_input_that_is_closed_is_named() -> None:
    command = f"exec '{sys.executable}' -m gnomon.cli.main kv import copy - <&-"
    refused = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert (refused.returncode, "standard input is closed" in refused.stderr) == (Exit.FAILED, True)
