"""Checks the pages of an LMDB file without LMDB, which trusts them: a damaged page may end its process by a signal.

The layout is that of LMDB 0.9 on 64-bit machines: https://git.openldap.org/openldap/openldap (libraries/liblmdb/mdb.c).

1. A page that is used has its own number, a type, and nodes within its bounds; the keys of a page are in order.
2. Every page that a page refers to lies within the used part of the file, and is used once. No used page is in the list
   of free pages. Each tree has as many pages and entries as its record says. (A bounded check sees a part of this.)
3. The two meta pages are those of two transactions in a row: otherwise the older one could pass for the newer one.
4. Pages are read level by level, so that a bounded check finds damage that hides many records first.
5. A check raises nothing but `DamagedPage`, whatever the bytes are.
6. `readable_records` passes over damaged pages and all below them. A record that it yields may be older than the store:
   a damaged reference may lead to a page that was freed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from itertools import pairwise
from struct import Struct, error, unpack_from
from typing import NamedTuple

_HEADER = Struct("<QHHHH")  # number, pad, flags, lower, upper
_OVERFLOW_PAGES = Struct("<I")
_META = Struct("<IIQQ")  # magic, version, address, map size
_TREE = Struct("<IHHQQQQQ")  # pad, flags, depth, branch pages, leaf pages, overflow pages, entries, root
_META_END = Struct("<QQ")  # last page, transaction
_NODE = Struct("<HHHH")  # low, high, flags, key size
_BIG = Struct("<Q")
_MAGIC = 0xBEEFC0DE
_BRANCH, _LEAF, _OVERFLOW, _META_PAGE = 1, 2, 4, 8
"""A page on the disk has one of these flags. With others (dirty, loose) LMDB would write to it, or fail, later on."""
_BIG_DATA, _TREE_DATA = 1, 2
_NO_PAGE = (1 << 64) - 1
_FREES_NOTHING_MAX = 2
"""Only the first transactions may have no page to replace."""
_DEPTH_MAX = 32
_PAGE_SIZES = {1 << power for power in range(9, 17)}
_HEADER_BYTES = _HEADER.size


class DamagedPage(Exception):
    """A page is not as LMDB writes it; the text says which one, and how."""


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


class _Meta(NamedTuple):
    page_bytes: int
    last_page: int
    free: tuple[int, ...]
    main: tuple[int, ...]


def _read_meta(read: Callable[[int, int], bytes]) -> _Meta:
    found: dict[int, _Meta] = {}
    page_bytes = 0
    for number in range(2):
        transaction, meta = _one_meta(read, number, page_bytes)
        if page_bytes not in (0, meta.page_bytes):
            raise DamagedPage(f"page {number} has a page size of {meta.page_bytes}")
        page_bytes = meta.page_bytes
        found[transaction] = meta
        if transaction and transaction % 2 != number:
            raise DamagedPage(f"page {number} is of transaction {transaction}")
    newest, oldest = max(found), min(found)
    if newest - oldest > 1:
        raise DamagedPage(f"its first two pages are of the transactions {oldest} and {newest}")
    for transaction, meta in found.items():
        freed = _last_freed(read, meta)
        if freed != transaction and (freed or transaction > _FREES_NOTHING_MAX):
            raise DamagedPage(f"a page of transaction {transaction} lists the free pages of transaction {freed}")
    return found[newest]


def _one_meta(read: Callable[[int, int], bytes], number: int, page_bytes: int) -> tuple[int, _Meta]:
    """The transaction of a meta page, and what the page says."""
    page = read(number * page_bytes, 256)
    try:
        magic, version, _, _ = _META.unpack_from(page, _HEADER_BYTES)
        free = _TREE.unpack_from(page, _HEADER_BYTES + _META.size)
        main = _TREE.unpack_from(page, _HEADER_BYTES + _META.size + _TREE.size)
        last_page, transaction = _META_END.unpack_from(page, _HEADER_BYTES + _META.size + 2 * _TREE.size)
    except error:
        raise DamagedPage("it has no two pages that describe it") from None
    own_number, _, flags, _, _ = _HEADER.unpack_from(page)
    if magic != _MAGIC or version != 1 or own_number != number or flags != _META_PAGE:
        raise DamagedPage(f"page {number} does not describe a store")
    if free[0] not in _PAGE_SIZES:
        raise DamagedPage(f"page {number} has a page size of {free[0]}")
    return transaction, _Meta(free[0], last_page, free, main)


def _readable_metas(read: Callable[[int, int], bytes]) -> list[_Meta]:
    """The meta pages that are not damaged, the older one first."""
    found: dict[int, _Meta] = {}
    for number in range(2):
        for page_bytes in sorted(_PAGE_SIZES) if number else (0,):
            with suppress(DamagedPage):
                transaction, meta = _one_meta(read, number, page_bytes)
                found[transaction] = meta
    return [found[transaction] for transaction in sorted(found)]


def _last_freed(read: Callable[[int, int], bytes], meta: _Meta) -> int:
    """The last transaction in the list of free pages: each one frees the pages that it replaces."""
    number = meta.free[7]
    for _ in range(_DEPTH_MAX):
        if number == _NO_PAGE:
            return 0
        page = read(number * meta.page_bytes, meta.page_bytes)
        try:
            _, _, flags, lower, _ = _HEADER.unpack_from(page)
            (at,) = unpack_from("<H", page, lower - 2)
            low, high, node_flags, _ = _NODE.unpack_from(page, at)
            if flags & _LEAF:
                return int(_BIG.unpack_from(page, at + _NODE.size)[0])
        except error:
            break
        number = low | high << 16 | node_flags << 32
    raise DamagedPage("the list of free pages cannot be read")


def check_pages(read: Callable[[int, int], bytes], *, pages_max: float = math.inf) -> int:
    """Checks the pages of all trees, at most `pages_max` of them.

    Args:
        read: returns up to so many bytes from a position of the file.

    Returns:
        the number of pages that were checked.

    Raises:
        DamagedPage: one of them is damaged.
    """
    return _Walk(read, _read_meta(read)).check(pages_max)


def readable_records(read: Callable[[int, int], bytes]) -> Iterator[tuple[bytes, bytes, bytes]]:
    """The records that can be read, each as the name of its database, key and value; see invariant 6.

    They are those of the last two transactions, whose newer records come last: a damaged page may be one of the last.
    """
    for meta in _readable_metas(read):
        yield from _Walk(read, meta).records()


class _Walk:
    """One check of a file."""

    def __init__(self, read: Callable[[int, int], bytes], meta: _Meta) -> None:
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
            if number != _NO_PAGE:
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
            if number == _NO_PAGE or tree.kind is _Kind.FREE:
                continue
            try:
                self._use(number, 1, f"a {tree.kind.name} tree")
                self._check_page(number, tree)
            except (DamagedPage, error):
                continue
            if tree.kind is _Kind.DATABASE:
                yield from self._records_of(number, tree)

    def _records_of(self, number: int, tree: _Tree) -> Iterator[tuple[bytes, bytes, bytes]]:
        page_bytes = self._meta.page_bytes
        page = self._read(number * page_bytes, page_bytes)
        _, _, kind, lower, _ = _HEADER.unpack_from(page)
        for at in unpack_from(f"<{(lower - _HEADER_BYTES) // 2}H", page, _HEADER_BYTES) if kind & _LEAF else ():
            low, high, flags, key_bytes = _NODE.unpack_from(page, at)
            start, size = at + _NODE.size + key_bytes, low | high << 16
            value = page[start : start + size]
            if flags & _BIG_DATA:
                value = self._read(_BIG.unpack_from(page, start)[0] * page_bytes + _HEADER_BYTES, size)
            if len(value) == size:
                yield tree.name, page[at + _NODE.size : start], value

    def _use(self, first: int, count: int, what: str) -> None:
        if not 2 <= first <= first + count - 1 <= self._meta.last_page:
            raise DamagedPage(f"{what} has {count} pages from {first} on, the last page is {self._meta.last_page}")
        pages = range(first, first + count)
        if not self._used.isdisjoint(pages):
            raise DamagedPage(f"page {first} is used twice")
        self._used.update(pages)

    def _check_page(self, number: int, tree: _Tree) -> None:
        page = self._read(number * self._meta.page_bytes, self._meta.page_bytes)
        if len(page) < self._meta.page_bytes:
            raise DamagedPage(f"page {number} is beyond the end of the file")
        own_number, _, flags, lower, upper = _HEADER.unpack_from(page)
        if own_number != number:
            raise DamagedPage(f"page {number} has the number {own_number}")
        if flags not in (_BRANCH, _LEAF):
            raise DamagedPage(f"page {number} has the type {flags:#x}")
        if not _HEADER_BYTES <= lower <= upper <= self._meta.page_bytes or lower % 2:
            raise DamagedPage(f"page {number} has its nodes outside of it")
        places = unpack_from(f"<{(lower - _HEADER_BYTES) // 2}H", page, _HEADER_BYTES)
        branch = flags == _BRANCH
        tree.found[0 if branch else 1] += 1
        tree.found[3] += 0 if branch else len(places)
        before = b""
        for index, at in enumerate(places):
            if not upper <= at <= self._meta.page_bytes - _NODE.size:
                raise DamagedPage(f"page {number} has a node outside of it")
            low, high, node_flags, key_bytes = _NODE.unpack_from(page, at)
            start = at + _NODE.size
            key = page[start : start + key_bytes]
            if len(key) < key_bytes:
                raise DamagedPage(f"page {number} has a key that ends outside of it")
            ordered = index > (1 if branch else 0)  # the first key of a branch page is never compared
            if ordered and tree.kind is not _Kind.FREE and key <= before:  # the keys of free pages are numbers
                raise DamagedPage(f"page {number} has keys out of order")
            before = key
            if branch:
                self._waiting.append((low | high << 16 | node_flags << 32, tree))
            else:
                self._check_value(number, page, key, start + key_bytes, low | high << 16, node_flags, tree)

    def _check_value(self, number: int, page: bytes, key: bytes, at: int, size: int, flags: int, tree: _Tree) -> None:
        value = page[at : at + size]
        if flags & ~(_TREE_DATA if tree.kind is _Kind.MAIN else _BIG_DATA):
            raise DamagedPage(f"page {number} has a node of the type {flags:#x}")
        if flags & _BIG_DATA:
            (first,) = _BIG.unpack_from(page, at)
            self._use(first, 1, f"a value of page {number}")
            head = self._read(first * self._meta.page_bytes, _HEADER_BYTES)
            own_number, _, kind, _, _ = _HEADER.unpack_from(head)
            (count,) = _OVERFLOW_PAGES.unpack_from(head, 12)
            # A value may have more pages than it needs, if a longer one was replaced.
            if own_number != first or kind != _OVERFLOW or count * self._meta.page_bytes < size + _HEADER_BYTES:
                raise DamagedPage(f"page {first} is not the value that page {number} has there")
            if count > 1:
                self._use(first + 1, count - 1, f"a value of page {number}")
            tree.found[2] += count
            if tree.kind is _Kind.FREE:
                value = self._read(first * self._meta.page_bytes + _HEADER_BYTES, size)
        elif at + size > self._meta.page_bytes:
            raise DamagedPage(f"page {number} has a value that ends outside of it")
        if tree.kind is _Kind.MAIN:
            self._add_database(number, key, value, flags)
        elif tree.kind is _Kind.FREE:
            self._add_free(number, value)

    def _add_database(self, number: int, name: bytes, value: bytes, flags: int) -> None:
        if not flags & _TREE_DATA or len(value) != _TREE.size:
            raise DamagedPage(f"page {number} names something that is no database")
        tree = _Tree(_Kind.DATABASE, _TREE.unpack(value), name)
        self._trees.append(tree)
        self._waiting.append((tree.root, tree))

    def _add_free(self, number: int, value: bytes) -> None:
        """A list of free pages: their number, then the pages in descending order."""
        (count,) = _BIG.unpack_from(value)
        pages = unpack_from(f"<{count}Q", value, _BIG.size) if 8 * (count + 1) <= len(value) else (0,)
        in_order = all(after < before for before, after in pairwise(pages))
        if not in_order or (pages and not 2 <= pages[-1] <= pages[0] <= self._meta.last_page):
            raise DamagedPage(f"page {number} has a list of free pages that is none")
        self._free.append(pages)
