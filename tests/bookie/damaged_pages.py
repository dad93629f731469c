"""Damage to pages of a bookie's file, for tests."""

from __future__ import annotations

from pathlib import Path

from gnomon.bookie.storage.removal import ENTRY_KEY
from gnomon.runtime.disk.page import DamagedPage, read_page

PAGE = 4096
_LOWER = 12


def hide(path: Path, ledger: int, entry: int, lost: int = 1) -> int:
    """Cuts references off the leaf page with an entry, so that LMDB does not find the last entries of that page.

    Args:
        path: the folder of the store; nothing writes to it.
        lost: the number of references.

    Returns:
        The number of the page that was damaged last.
    """
    data = bytearray((path / "data.mdb").read_bytes())
    key, damaged = ENTRY_KEY.pack(ledger, entry), 0
    for at in range(2 * PAGE, len(data), PAGE):
        if _has(data, at // PAGE, key):
            lower = int.from_bytes(data[at + _LOWER : at + _LOWER + 2], "little")
            with open(path / "data.mdb", "r+b") as file:  # in place: LMDB may have it open
                file.seek(at + _LOWER)
                file.write((lower - 2 * lost).to_bytes(2, "little"))
            damaged = at // PAGE
    assert damaged, f"no page has entry {entry} of ledger {ledger}"
    return damaged


def _has(data: bytearray, number: int, key: bytes) -> bool:
    try:
        page = read_page(lambda at, count: bytes(data[at : at + count]), number, PAGE)
    except DamagedPage:
        return False
    return not page.branch and any(node.key == key for node in page.nodes)
