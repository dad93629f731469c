"""Programs in Go, built from the module proxy into the cache."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.generator import GeneratorUnavailable


@dataclass(frozen=True, slots=True)
class GoProgram:
    """The program of a package."""

    package: str
    version: str

    def build(self, cache: Path) -> Path:
        """The path of the program.

        Raises:
            GeneratorUnavailable: there is no Go here, or it could not be built.
        """
        program = cache / f"{Path(self.package).name}-{self.version}"
        if program.exists():
            return program
        go = shutil.which("go")
        if go is None:
            raise GeneratorUnavailable(f"no go on the path: {Path(self.package).name} comes through Go's modules")
        with tempfile.TemporaryDirectory(dir=cache) as module:
            (Path(module) / "main.go").write_text("package main\n\nfunc main() {}\n")
            for step in (
                ("mod", "init", "bench"),
                ("get", f"{self.package}@{self.version}"),
                ("build", "-o", str(program), self.package),
            ):
                done = subprocess.run([go, *step], cwd=module, capture_output=True, text=True)
                if done.returncode:
                    reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
                    raise GeneratorUnavailable(f"go {step[0]} of {self.package} failed: {reason}")
        return program
