"""Transcripts of a bench: flush left is what clients ask, indented what they hear."""

from __future__ import annotations

from textwrap import dedent


def said(bench, expected):
    lines, bench.transcript = bench.transcript, []
    assert "\n".join(lines) == dedent(expected).strip()
    return True
