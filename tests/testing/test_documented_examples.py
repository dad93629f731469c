"""The examples of docs/testing.md run as they are written there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_every_example_of_the_page_runs(tmp_path: Path) -> None:
    """The examples are one run of pytest, in which they share the broker of the session."""
    scripts = [example for example in EXAMPLES if "def test_" not in example]
    for number, example in enumerate(EXAMPLES):
        body = example if example not in scripts else "def test_script():\n" + re.sub("^", "    ", example, flags=re.M)
        (tmp_path / f"test_example_{number}.py").write_text(body)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "GNOMON_"))}
    done = subprocess.run([*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, env=clean)
    assert done.returncode == 0, done.stdout
    assert len(EXAMPLES) >= 7
    assert f"{len(EXAMPLES)} passed" in done.stdout
