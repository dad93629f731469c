"""Lengths at which an encoding changes: those of varints of one to three bytes, with and without sign, and of int16."""

from __future__ import annotations

from hypothesis import strategies as st

LENGTHS = (0, 1, 63, 64, 65, 126, 127, 128, 8_191, 8_192, 8_193, 16_382, 16_383, 16_384, 16_385, 32_766, 32_767)
lengths = st.sampled_from(LENGTHS)
texts = lengths.map(lambda length: "t" * length)
byte_strings = lengths.map(bytes)
