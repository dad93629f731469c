"""A package of the extra `spark` that is not installed is named, with the command that installs it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["pyarrow"] = None
from gnomon import spark
spark.register(None)
"""


def test_a_missing_package_is_named_with_its_extra() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], stderr=subprocess.PIPE, text=True)
    last = ran.stderr.strip().splitlines()[-1]
    assert last == (
        "ModuleNotFoundError: Spark's format 'gnomon' needs the package pyarrow, which is not installed: pip install"
        " 'gnomon[spark]'"
    )
