"""Runs `gnomon` as in an environment without the HTTP server and its metrics: importing them fails."""

from __future__ import annotations

import runpy
import sys

if __name__ == "__main__":
    for name in ("hypercorn", "starlette", "prometheus_client", "rich"):
        sys.modules[name] = None  # as documented: the import then fails
    runpy.run_module("gnomon.cli.child", run_name="__main__", alter_sys=True)
