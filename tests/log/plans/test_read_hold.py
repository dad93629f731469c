"""The metadata record of a read hold (numbers: invariants of `read_hold`)."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.log.entry import Offset
from gnomon.log.plans.read_hold import HoldPlace, ReadHold, is_hold_name, reads_prefix
from gnomon.metadata.client import KEY_BYTES_MAX


@given(st.integers(0, 2**63 - 1), st.integers(1, 3_600))
def test_a_value_is_decoded_as_it_was_encoded(offset: int, seconds: int) -> None:
    hold = ReadHold(Offset(offset), seconds)
    assert ReadHold.decode(hold.encode()) == hold


@given(st.binary(max_size=20))
def test_any_other_value_is_no_error(value: bytes) -> None:  # 2
    assert ReadHold.decode(value).offset is not None


@pytest.mark.parametrize("value", [b"", b"\xc1", b"\x91\x01", b"\x93\x01\x02\x03", b"\x92\xa1a\x01", b"\x92\x01\xa1a"])
def test_a_value_that_cannot_be_read_holds_everything(value: bytes) -> None:  # 2
    assert ReadHold.decode(value).offset == 0


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "n" * 100])
def test_a_name_needs_no_quoting_in_a_key(name: str) -> None:  # 1
    assert is_hold_name(name)
    place = HoldPlace(UUID(int=7), 10_000, name)
    assert HoldPlace.of_key(place.key) == place
    assert place.key.startswith(reads_prefix(UUID(int=7)))
    assert re.fullmatch(r"[!-~]+", place.key)
    assert len(place.key) <= KEY_BYTES_MAX


@pytest.mark.parametrize("name", ["n" * 101, "", "a/b", "ä", "a\n", "a b", "%2F"])
def test_other_names_are_none(name: str) -> None:  # 1
    assert not is_hold_name(name)
