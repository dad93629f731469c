"""One page of an LMDB file, read without LMDB; `pages` has the source of the layout.

1. A page that is used has its own number, a type, and nodes within its bounds; the keys of a page are in order. Its
   nodes fill the end of the page without a gap, so none is lost.
2. The two meta pages are those of two transactions in a row: otherwise the older one could pass for the newer one.
3. Reading raises nothing but `DamagedPage`, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from struct import Struct, error, unpack_from
from typing import NamedTuple

HEADER = Struct("<QHHHH")  # number, pad, flags, lower, upper
OVERFLOW_PAGES = Struct("<I")
_META = Struct("<IIQQ")  # magic, version, address, map size
TREE = Struct("<IHHQQQQQ")  # pad, flags, depth, branch pages, leaf pages, overflow pages, entries, root
_META_END = Struct("<QQ")  # last page, transaction
NODE = Struct("<HHHH")  # low, high, flags, key size
NUMBER = Struct("<Q")
_MAGIC = 0xBEEFC0DE
_BRANCH, LEAF, OVERFLOW, _META_PAGE = 1, 2, 4, 8
"""A page on the disk has one of these flags. With others (dirty, loose) LMDB would write to it, or fail, later on."""
BIG_DATA, TREE_DATA = 1, 2
NO_PAGE = (1 << 64) - 1
_FREES_NOTHING_MAX = 2
"""Only the first transactions may have no page to replace."""
DEPTH_MAX = 32
_PAGE_SIZES = {1 << power for power in range(9, 17)}
HEADER_BYTES = HEADER.size


class DamagedPage(Exception):
    """A page is not as LMDB writes it; the text says which one, and how."""


class Meta(NamedTuple):
    """The trees of one transaction, as a meta page describes them."""

    page_bytes: int
    last_page: int
    free: tuple[int, ...]
    main: tuple[int, ...]


def read_meta(read: Callable[[int, int], bytes]) -> Meta:
    """The newest meta page of a file that no process writes to.

    Raises:
        DamagedPage: the two meta pages are not those of the last two transactions.
    """
    found: dict[int, Meta] = {}
    page_bytes = 0
    for number in range(2):
        transaction, meta = one_meta(read, number, page_bytes)
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


def one_meta(read: Callable[[int, int], bytes], number: int, page_bytes: int) -> tuple[int, Meta]:
    """The transaction of a meta page, and what the page says.

    Raises:
        DamagedPage: it is no meta page.
    """
    page = read(number * page_bytes, 256)
    try:
        magic, version, _, _ = _META.unpack_from(page, HEADER_BYTES)
        free = TREE.unpack_from(page, HEADER_BYTES + _META.size)
        main = TREE.unpack_from(page, HEADER_BYTES + _META.size + TREE.size)
        last_page, transaction = _META_END.unpack_from(page, HEADER_BYTES + _META.size + 2 * TREE.size)
    except error:
        raise DamagedPage("it has no two pages that describe it") from None
    own_number, _, flags, _, _ = HEADER.unpack_from(page)
    if magic != _MAGIC or version != 1 or own_number != number or flags != _META_PAGE:
        raise DamagedPage(f"page {number} does not describe a store")
    if free[0] not in _PAGE_SIZES:
        raise DamagedPage(f"page {number} has a page size of {free[0]}")
    return transaction, Meta(free[0], last_page, free, main)


def readable_metas(read: Callable[[int, int], bytes]) -> list[Meta]:
    """The meta pages that are not damaged, the older one first."""
    found: dict[int, Meta] = {}
    for number in range(2):
        for page_bytes in sorted(_PAGE_SIZES) if number else (0,):
            with suppress(DamagedPage):
                transaction, meta = one_meta(read, number, page_bytes)
                found[transaction] = meta
    return [found[transaction] for transaction in sorted(found)]


def _last_freed(read: Callable[[int, int], bytes], meta: Meta) -> int:
    """The last transaction in the list of free pages: each one frees the pages that it replaces."""
    number = meta.free[7]
    for _ in range(DEPTH_MAX):
        if number == NO_PAGE:
            return 0
        page = read(number * meta.page_bytes, meta.page_bytes)
        try:
            _, _, flags, lower, _ = HEADER.unpack_from(page)
            (at,) = unpack_from("<H", page, lower - 2)
            low, high, node_flags, _ = NODE.unpack_from(page, at)
            if flags & LEAF:
                return int(NUMBER.unpack_from(page, at + NODE.size)[0])
        except error:
            break
        number = low | high << 16 | node_flags << 32
    raise DamagedPage("the list of free pages cannot be read")


class PageNode(NamedTuple):
    """A node of a page; in a branch page it refers to a page, in a leaf it has a value."""

    key: bytes
    number: int
    """The page that a branch refers to, or the size of the value in bytes."""
    flags: int
    at: int
    """The place of the value in the page."""


class StoredPage(NamedTuple):
    """A page of a tree that is sound by itself."""

    number: int
    branch: bool
    nodes: list[PageNode]
    content: bytes


def read_page(
    read: Callable[[int, int], bytes],
    number: int,
    page_bytes: int,
    order: Callable[[bytes], bytes] | None = None,
    leaf_flags: int = BIG_DATA,
) -> StoredPage:
    """A branch or leaf page, checked.

    Args:
        order: maps a key to bytes that are in the order of the keys.
        leaf_flags: that the nodes of a leaf may have.

    Raises:
        DamagedPage: it is none, or is damaged.
    """
    content = read(number * page_bytes, page_bytes)
    if len(content) < page_bytes:
        raise DamagedPage(f"page {number} is beyond the end of the file")
    own_number, _, flags, lower, upper = HEADER.unpack_from(content)
    if own_number != number:
        raise DamagedPage(f"page {number} has the number {own_number}")
    if flags not in (_BRANCH, LEAF):
        raise DamagedPage(f"page {number} has the type {flags:#x}")
    if not HEADER_BYTES <= lower <= upper <= page_bytes or lower % 2:
        raise DamagedPage(f"page {number} has its nodes outside of it")
    nodes: list[PageNode] = []
    nodes_bytes = 0
    before: bytes | None = None
    for at in unpack_from(f"<{(lower - HEADER_BYTES) // 2}H", content, HEADER_BYTES):
        if not upper <= at <= page_bytes - NODE.size:
            raise DamagedPage(f"page {number} has a node outside of it")
        low, high, node_flags, key_bytes = NODE.unpack_from(content, at)
        start = at + NODE.size
        key = content[start : start + key_bytes]
        if len(key) < key_bytes:
            raise DamagedPage(f"page {number} has a key that ends outside of it")
        size = low | high << 16
        if flags == _BRANCH:
            node = PageNode(key, size | node_flags << 32, 0, start + key_bytes)
            value_bytes = 0
        else:
            if node_flags & ~leaf_flags:
                raise DamagedPage(f"page {number} has a node of the type {node_flags:#x}")
            node = PageNode(key, size, node_flags, start + key_bytes)
            value_bytes = NUMBER.size if node_flags & BIG_DATA else size
        nodes_bytes += (NODE.size + key_bytes + value_bytes + 1) & -2
        if order is not None and (nodes or flags == LEAF):  # the first key of a branch page is never compared
            place = order(key)
            if before is not None and place <= before:
                raise DamagedPage(f"page {number} has keys out of order")
            before = place
        nodes.append(node)
    if nodes_bytes != page_bytes - upper:
        raise DamagedPage(f"page {number} has {page_bytes - upper} bytes of nodes, and refers to {nodes_bytes}")
    return StoredPage(number, flags == _BRANCH, nodes, content)


def value_pages(
    read: Callable[[int, int], bytes], page: StoredPage, node: PageNode, page_bytes: int
) -> tuple[int, int]:
    """The first page of a value that has pages of its own, and their number.

    Raises:
        DamagedPage: they are not those of the value.
    """
    try:
        (first,) = NUMBER.unpack_from(page.content, node.at)
        head = read(first * page_bytes, HEADER_BYTES)
        own_number, _, kind, _, _ = HEADER.unpack_from(head)
        (count,) = OVERFLOW_PAGES.unpack_from(head, 12)
    except (error, OverflowError, OSError):
        raise DamagedPage(f"page {page.number} has a value outside of the file") from None
    # A value may have more pages than it needs, if a longer one was replaced.
    if own_number != first or kind != OVERFLOW or count * page_bytes < node.number + HEADER_BYTES:
        raise DamagedPage(f"page {first} is not the value that page {page.number} has there")
    return first, count
