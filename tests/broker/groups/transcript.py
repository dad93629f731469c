"""Transcripts of a bench: requests of clients are flush left, their responses indented."""

from __future__ import annotations

from textwrap import dedent


def said(bench, expected):
    lines, bench.transcript = bench.transcript, []
    assert "\n".join(lines) == dedent(expected).strip()
    return True
