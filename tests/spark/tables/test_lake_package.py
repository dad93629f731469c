"""The packages of tables that are not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gnomon.spark.tables.delta_table import DeltaTable
from gnomon.spark.tables.iceberg_table import IcebergTable


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("deltalake", "pyiceberg")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("deltalake", "pyiceberg"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=r"^needs the package deltalake: pip install 'gnomon\[lake\]'$"):
        DeltaTable("/tmp/none", "p")
    with pytest.raises(ModuleNotFoundError, match=r"^needs the package pyiceberg: pip install 'gnomon\[lake\]'$"):
        IcebergTable("a.b", "p", catalog={})


def test_the_modules_of_tables_load_no_package_that_only_some_tables_need() -> None:
    program = (
        "import sys; from gnomon.spark.tables import delta_table, iceberg_table, parquet_table;"
        " print(sorted(sys.modules.keys() & {'deltalake', 'pyiceberg', 'trio', 'pyspark'}))"
    )
    found = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert found.stdout.strip() == "[]"
