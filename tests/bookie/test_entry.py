from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.bookie.entry import HEADER_BYTES, decode_entry, encode_entry, session_of, verify_entry
from gnomon.bookie.errors import DigestMismatch
from gnomon.bookie.ids import EntryId, LedgerId, SessionId

numbers = st.integers(0, 2**63 - 1)


@given(numbers, numbers, numbers, st.integers(-1, 2**63 - 1), numbers, st.lists(st.binary(max_size=50), max_size=4))
def test_an_entry_decodes_to_what_was_encoded(
    ledger: int, entry: int, session: int, confirmed: int, length: int, chunks: list[bytes]
) -> None:
    value = encode_entry(LedgerId(ledger), EntryId(entry), SessionId(session), EntryId(confirmed), length, chunks)
    stored = decode_entry(LedgerId(ledger), EntryId(entry), memoryview(value))
    assert stored[:3] == (session, confirmed, length)
    assert bytes(stored.payload) == b"".join(chunks)
    assert len(value) == HEADER_BYTES + len(stored.payload)


@given(st.binary(max_size=40), st.data())
def test_any_flipped_bit_is_an_error_that_names_ledger_and_entry(payload: bytes, data: st.DataObject) -> None:
    value = bytearray(encode_entry(LedgerId(7), EntryId(9), SessionId(3), EntryId(8), 100, [payload]))
    bit = data.draw(st.integers(0, 8 * len(value) - 1))
    value[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DigestMismatch, match="entry 9 of ledger 7"):
        decode_entry(LedgerId(7), EntryId(9), memoryview(value))


def test_a_value_found_under_another_key_is_an_error() -> None:
    value = memoryview(encode_entry(LedgerId(7), EntryId(9), SessionId(3), EntryId(8), 100, [b"payload"]))
    for ledger, entry in ((7, 10), (8, 9)):
        with pytest.raises(DigestMismatch):
            decode_entry(LedgerId(ledger), EntryId(entry), value)


def test_a_value_that_is_too_short_is_an_error() -> None:
    with pytest.raises(DigestMismatch):
        decode_entry(LedgerId(1), EntryId(1), memoryview(b"short"))


def test_a_copy_of_an_entry_has_memory_of_its_own() -> None:
    value = bytearray(encode_entry(LedgerId(7), EntryId(9), SessionId(3), EntryId(8), 100, [b"payload"]))
    stored = decode_entry(LedgerId(7), EntryId(9), memoryview(value))
    assert stored.value == value
    copied = stored.copy()
    value[:] = bytes(len(value))
    assert (copied.session, copied.last_add_confirmed, copied.length_bytes) == (3, 8, 100)
    assert bytes(copied.payload) == b"payload"
    assert decode_entry(LedgerId(7), EntryId(9), copied.value) == copied


def test_the_session_of_a_stored_value_is_read_without_its_digest() -> None:
    value = bytearray(encode_entry(LedgerId(7), EntryId(9), SessionId(3), EntryId(8), 100, [b"payload"]))
    value[-1] ^= 1
    assert session_of(memoryview(value)) == 3
    with pytest.raises(DigestMismatch, match="entry 9 of ledger 7"):
        verify_entry(LedgerId(7), EntryId(9), memoryview(value)[:5])
