"""Looks up keys in an LMDB file without LMDB, also while LMDB writes to it.

1. The pages that a lookup reads belong to one transaction, which is not older than a read transaction that the caller
   has open. LMDB reuses no page of such a transaction while the caller's is open.
2. A page on the path to a key is sound by itself (`page`), and its keys are between the keys that its parent has before
   and after it.
3. `gap` answers only if the pages beside the path agree: a damaged key in a branch page would lead to a sound page
   which is the wrong one.
4. A lookup raises nothing but `DamagedKeys`, which says what keys the damaged page may have.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from gnomon.runtime.disk.page import (
    BIG_DATA,
    DEPTH_MAX,
    NO_PAGE,
    TREE,
    TREE_DATA,
    DamagedPage,
    Meta,
    StoredPage,
    one_meta,
    read_page,
    value_pages,
)

Read = Callable[[int, int], bytes]
_META_TRIES: Final = 5
"""Readings of the two meta pages: LMDB may be writing one of them."""


class DamagedKeys(DamagedPage):
    """A page is damaged that may have keys from `low` on and below `high`; None means that no key is above them."""

    def __init__(self, text: str, low: bytes, high: bytes | None) -> None:
        super().__init__(text)
        self.low, self.high = low, high


class KeyGap(NamedTuple):
    """The keys of a database next to a key: the largest one below it and the smallest one above it, None for none."""

    before: bytes | None
    here: bool
    """Whether the database has the key itself."""
    after: bytes | None


class Leaf(NamedTuple):
    """A leaf page that was checked."""

    pages: int
    """The number of pages that were looked at."""
    next_key: bytes | None
    """The next leaf has the keys from this one on; None for the last leaf."""


class _LeafPlace(NamedTuple):
    """A leaf page, the keys that it may have, and the length of the path to it."""

    page: StoredPage
    low: bytes
    high: bytes | None
    depth: int


class PageTree:
    """One database as of one transaction."""

    def __init__(self, read: Read, meta: Meta, root: int, leaf_flags: int = BIG_DATA) -> None:
        self._read, self._meta, self._root, self._leaf_flags = read, meta, root, leaf_flags

    def gap(self, key: bytes) -> KeyGap:
        """The neighbours of a key.

        Raises:
            DamagedKeys: see the invariants.
        """
        if self._root == NO_PAGE:
            return KeyGap(None, False, None)
        leaf = self._leaf_of(key)
        keys = [node.key for node in leaf.page.nodes]
        at = bisect_left(keys, key)
        here = at < len(keys) and keys[at] == key
        before = keys[at - 1] if at else None
        after = keys[at + here] if at + here < len(keys) else None
        if before is None and leaf.low:
            before = self._leaf_of(leaf.low, below=True).page.nodes[-1].key
        if after is None and leaf.high is not None:
            after = self._leaf_of(leaf.high).page.nodes[0].key
        if (before is not None and before >= key) or (after is not None and after <= key):
            raise DamagedKeys(f"page {leaf.page.number} is not between its neighbours", leaf.low, leaf.high)
        return KeyGap(before, here, after)

    def check_leaf(self, key: bytes) -> Leaf:
        """Checks the leaf page that has the place of a key, the path to it, and the heads of its large values.

        Raises:
            DamagedKeys: one of them is damaged.
        """
        if self._root == NO_PAGE:
            return Leaf(0, None)
        leaf = self._leaf_of(key)
        pages = leaf.depth
        try:
            for node in leaf.page.nodes:
                if node.flags & BIG_DATA:
                    value_pages(self._read, leaf.page, node, self._meta.page_bytes)
                    pages += 1
                elif node.at + node.number > self._meta.page_bytes:
                    raise DamagedPage(f"page {leaf.page.number} has a value that ends outside of it")
        except DamagedPage as damage:
            raise DamagedKeys(str(damage), leaf.low, leaf.high) from None
        return Leaf(pages, leaf.high)

    def _leaf_of(self, key: bytes, *, below: bool = False) -> _LeafPlace:
        """The leaf for `key`; with `below`, the leaf for the keys just below it."""
        number, low, high = self._root, b"", None
        for depth in range(1, DEPTH_MAX + 1):
            page = self._page(number, low, high)
            if not page.branch:
                return _LeafPlace(page, low, high, depth)
            keys = [node.key for node in page.nodes]
            at = (bisect_left if below else bisect_right)(keys, key, 1) - 1  # the first key means every lower one
            low = keys[at] if at else low
            high = keys[at + 1] if at + 1 < len(keys) else high
            number = page.nodes[at].number
        raise DamagedKeys(f"page {number} is too deep in its tree", low, high)

    def _page(self, number: int, low: bytes, high: bytes | None) -> StoredPage:
        try:
            if not 2 <= number <= self._meta.last_page:
                raise DamagedPage(f"page {number} is not in use, the last page is {self._meta.last_page}")
            page = read_page(self._read, number, self._meta.page_bytes, bytes, self._leaf_flags)
            keys = [node.key for node in page.nodes[page.branch :]]
            if not page.nodes:
                raise DamagedPage(f"page {number} is empty")
            if keys and (keys[0] < low or (high is not None and keys[-1] >= high)):
                raise DamagedPage(f"page {number} has keys of other pages")
        except DamagedPage as damage:
            raise DamagedKeys(str(damage), low, high) from None
        return page

    def value(self, key: bytes) -> tuple[bytes, int]:
        """The value of a key that is stored in the page itself, and the flags of its node; empty if there is none."""
        if self._root != NO_PAGE:
            page = self._leaf_of(key).page
            for node in page.nodes:
                if node.key == key and not node.flags & BIG_DATA:
                    return page.content[node.at : node.at + node.number], node.flags
        return b"", 0


def page_tree(read: Read, transaction: int, page_bytes: int, name: str) -> PageTree:
    """A database of a file, by its name.

    Args:
        read: returns up to so many bytes from a position of the file.
        transaction: the id of a read transaction that stays open while the tree is used.

    Raises:
        DamagedKeys: the pages that lead to it are damaged.
    """
    meta = _meta_since(read, transaction, page_bytes)
    value, flags = PageTree(read, meta, meta.main[-1], TREE_DATA).value(name.encode())
    if not flags & TREE_DATA or len(value) != TREE.size:
        raise DamagedKeys(f"the database {name!r} cannot be found", b"", None)
    return PageTree(read, meta, TREE.unpack(value)[-1])


def _meta_since(read: Read, transaction: int, page_bytes: int) -> Meta:
    """The meta page of a transaction, or of a newer one."""
    for _ in range(_META_TRIES):
        found: dict[int, Meta] = {}
        for number in range(2):
            with suppress(DamagedPage):
                first, again = (one_meta(read, number, page_bytes) for _ in range(2))
                if first == again:
                    found[first[0]] = first[1]
        newest = max(found, default=-1)
        if newest >= transaction:
            return found.get(transaction, found[newest])
    raise DamagedKeys(f"the first two pages do not describe transaction {transaction}", b"", None)
