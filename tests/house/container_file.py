"""Reads the container file: its instructions, with continued lines joined and variables of the environment split."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]


class ContainerFile:
    """The instructions of `Dockerfile`, in order."""

    def __init__(self, path: Path = ROOT / "Dockerfile") -> None:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
        self.instructions = [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line]

    def the(self, name: str) -> str:
        """The text of an instruction that occurs once."""
        (text,) = [text for found, text in self.instructions if found == name]
        return text

    def words(self, name: str) -> list[str]:
        """The command of an instruction in its form without a shell."""
        words = json.loads(re.sub(r"^[^[]*", "", self.the(name)))  # options and `CMD` may come first
        assert isinstance(words, list)
        return words

    @property
    def variables(self) -> dict[str, str]:
        """The variables that ENV sets."""
        return dict(pair.split("=", 1) for pair in shlex.split(self.the("ENV")))
