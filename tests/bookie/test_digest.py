from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.bookie.digest import MAC_BYTES, Mac, password_digest, secret_of
from gnomon.bookie.errors import DigestMismatch
from gnomon.bookie.ids import EntryId, LedgerId

LEDGER, ENTRY = LedgerId(7), EntryId(3)


@given(st.lists(st.binary(max_size=50), max_size=4))
def test_opening_a_sealed_entry_gives_its_payload(chunks: list[bytes]) -> None:
    mac = Mac(LEDGER, secret_of(b"password"))
    sealed = b"".join(mac.seal(ENTRY, chunks))
    assert len(sealed) == MAC_BYTES + len(b"".join(chunks))
    assert mac.open(ENTRY, memoryview(sealed)) == b"".join(chunks)


@given(st.binary(min_size=1, max_size=50), st.data())
def test_opening_fails_after_a_changed_bit_and_with_another_entry_ledger_or_password(
    payload: bytes, data: st.DataObject
) -> None:
    mac = Mac(LEDGER, secret_of(b"password"))
    sealed = bytearray(b"".join(mac.seal(ENTRY, [payload])))
    for other, entry in (
        (mac, EntryId(4)),
        (Mac(LedgerId(8), secret_of(b"password")), ENTRY),
        (Mac(LEDGER, secret_of(b"Password")), ENTRY),
    ):
        with pytest.raises(DigestMismatch):
            other.open(entry, memoryview(sealed))
    bit = data.draw(st.integers(0, len(sealed) * 8 - 1))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DigestMismatch, match="entry 3 of ledger 7"):
        mac.open(ENTRY, memoryview(sealed))


def test_the_digest_of_the_empty_password_is_empty_and_others_depend_on_the_ledger_name() -> None:
    assert password_digest("name", secret_of(b"")) == b""
    assert password_digest("name", secret_of(b"p")) != password_digest("other", secret_of(b"p"))


def test_digests_that_are_stored_never_change() -> None:
    secret = secret_of(b"p")
    assert password_digest("name", secret).hex() == "c37956cb8167733c312c5af3f8dbfe5804dadb4ecfabb542f02cd90615874f50"
    sealed = b"".join(Mac(LEDGER, secret).seal(ENTRY, [b"payload"]))
    assert sealed.hex() == "5bdcc7f02c13a284245dc7288adcd42f" + b"payload".hex()
