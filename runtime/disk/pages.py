"""Checks the pages of an LMDB file without LMDB, which trusts them: a damaged page may end its process by a signal.

The layout is that of LMDB 0.9 on 64-bit machines: https://git.openldap.org/openldap/openldap (libraries/liblmdb/mdb.c).

1. Every page that is used is sound by itself (`page`).
2. Every page that a page refers to lies within the used part of the file, and is used once. No used page is in the list
   of free pages. Each tree has as many pages and entries as its record says. (A bounded check sees a part of this.)
3. The two meta pages are those of two transactions in a row (`page`).
4. Pages are read level by level, so that a bounded check finds damage that hides many records first.
5. A check raises nothing but `DamagedPage`, whatever the bytes are.
6. `readable_records` passes over damaged pages and all below them. A record that it yields may be older than the store:
   a damaged reference may lead to a page that was freed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import pairwise
from struct import error, unpack_from

from gnomon.runtime.disk.page import (
    BIG_DATA,
    HEADER_BYTES,
    NO_PAGE,
    NUMBER,
    TREE,
    TREE_DATA,
    DamagedPage,
    Meta,
    PageNode,
    StoredPage,
    read_meta,
    read_page,
    readable_metas,
    value_pages,
)


class _Kind(Enum):
    """The trees of a file: the list of free pages, the main database, whose records are trees, and those."""

    FREE = 0
    MAIN = 1
    DATABASE = 2


class _Tree:
    """One tree, and the pages and entries of it that were found."""

    def __init__(self, kind: _Kind, fields: tuple[int, ...], name: bytes = b"") -> None:
        self.kind = kind
        self.name = name
        self.declared = fields[3:7]
        """Branch pages, leaf pages, overflow pages, entries."""
        self.root = fields[7]
        self.found = [0, 0, 0, 0]


def check_pages(read: Callable[[int, int], bytes], *, pages_max: float = math.inf) -> int:
    """Checks the pages of all trees, at most `pages_max` of them.

    Args:
        read: returns up to so many bytes from a position of the file.

    Returns:
        the number of pages that were checked.

    Raises:
        DamagedPage: one of them is damaged.
    """
    return _Walk(read, read_meta(read)).check(pages_max)


def readable_records(read: Callable[[int, int], bytes]) -> Iterator[tuple[bytes, bytes, bytes]]:
    """The records that can be read, each as the name of its database, key and value; see invariant 6.

    They are those of the last two transactions, whose newer records come last: a damaged page may be one of the last.
    """
    for meta in readable_metas(read):
        yield from _Walk(read, meta).records()


class _Walk:
    """One check of a file."""

    def __init__(self, read: Callable[[int, int], bytes], meta: Meta) -> None:
        self._read = read
        self._meta = meta
        self._trees = [_Tree(_Kind.FREE, self._meta.free), _Tree(_Kind.MAIN, self._meta.main)]
        self._waiting = deque((tree.root, tree) for tree in self._trees)
        self._used: set[int] = {0, 1}
        self._free: list[tuple[int, ...]] = []

    def check(self, pages_max: float) -> int:
        """See `check_pages`."""
        checked = 0
        while self._waiting:
            if checked >= pages_max:
                return checked
            number, tree = self._waiting.popleft()
            if number != NO_PAGE:
                self._use(number, 1, f"a {tree.kind.name} tree")
                try:
                    self._check_page(number, tree)
                except error:
                    raise DamagedPage(f"page {number} ends within a node") from None
                checked += 1
        for tree in self._trees:
            if tuple(tree.found) != tree.declared:
                raise DamagedPage(f"a tree has {tree.found} pages and entries, and should have {list(tree.declared)}")
        for pages in self._free:
            if not self._used.isdisjoint(pages):
                raise DamagedPage("the list of free pages names a page that is used")
        return checked

    def records(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        """See `readable_records`."""
        while self._waiting:
            number, tree = self._waiting.popleft()
            if number == NO_PAGE or tree.kind is _Kind.FREE:
                continue
            try:
                self._use(number, 1, f"a {tree.kind.name} tree")
                page = self._check_page(number, tree)
            except (DamagedPage, error):
                continue
            if tree.kind is _Kind.DATABASE and not page.branch:
                yield from self._records_of(page, tree)

    def _records_of(self, page: StoredPage, tree: _Tree) -> Iterator[tuple[bytes, bytes, bytes]]:
        for key, size, flags, at in page.nodes:
            value = page.content[at : at + size]
            if flags & BIG_DATA:
                (first,) = NUMBER.unpack_from(page.content, at)
                value = self._read(first * self._meta.page_bytes + HEADER_BYTES, size)
            if len(value) == size:
                yield tree.name, key, value

    def _use(self, first: int, count: int, what: str) -> None:
        if not 2 <= first <= first + count - 1 <= self._meta.last_page:
            raise DamagedPage(f"{what} has {count} pages from {first} on, the last page is {self._meta.last_page}")
        pages = range(first, first + count)
        if not self._used.isdisjoint(pages):
            raise DamagedPage(f"page {first} is used twice")
        self._used.update(pages)

    def _check_page(self, number: int, tree: _Tree) -> StoredPage:
        order = None if tree.kind is _Kind.FREE else bytes  # the keys of free pages are numbers
        leaf_flags = TREE_DATA if tree.kind is _Kind.MAIN else BIG_DATA
        page = read_page(self._read, number, self._meta.page_bytes, order, leaf_flags)
        tree.found[0 if page.branch else 1] += 1
        for node in page.nodes:
            if page.branch:
                self._waiting.append((node.number, tree))
            else:
                tree.found[3] += 1
                self._check_value(page, node, tree)
        return page

    def _check_value(self, page: StoredPage, node: PageNode, tree: _Tree) -> None:
        number, key, size, flags = page.number, node.key, node.number, node.flags
        value = page.content[node.at : node.at + size]
        if flags & BIG_DATA:
            first, count = value_pages(self._read, page, node, self._meta.page_bytes)
            self._use(first, count, f"a value of page {number}")
            tree.found[2] += count
            if tree.kind is _Kind.FREE:
                value = self._read(first * self._meta.page_bytes + HEADER_BYTES, size)
        elif len(value) < size:
            raise DamagedPage(f"page {number} has a value that ends outside of it")
        if tree.kind is _Kind.MAIN:
            self._add_database(number, key, value, flags)
        elif tree.kind is _Kind.FREE:
            self._add_free(number, value)

    def _add_database(self, number: int, name: bytes, value: bytes, flags: int) -> None:
        if not flags & TREE_DATA or len(value) != TREE.size:
            raise DamagedPage(f"page {number} names something that is no database")
        tree = _Tree(_Kind.DATABASE, TREE.unpack(value), name)
        self._trees.append(tree)
        self._waiting.append((tree.root, tree))

    def _add_free(self, number: int, value: bytes) -> None:
        """A list of free pages: their number, then the pages in descending order."""
        (count,) = NUMBER.unpack_from(value)
        pages = unpack_from(f"<{count}Q", value, NUMBER.size) if 8 * (count + 1) <= len(value) else (0,)
        in_order = all(after < before for before, after in pairwise(pages))
        if not in_order or (pages and not 2 <= pages[-1] <= pages[0] <= self._meta.last_page):
            raise DamagedPage(f"page {number} has a list of free pages that is none")
        self._free.append(pages)
