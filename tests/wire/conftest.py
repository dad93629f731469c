"""Hypothesis without a deadline: a busy machine is not a failed test."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("wire", deadline=None)
settings.load_profile("wire")
