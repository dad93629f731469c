"""Damage to the file of one store, drawn by a seed, and done to a copy of a folder."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lmdb
from judged import file_of

PAGE = 4096
SECTOR = 512


@dataclass(frozen=True)
class Damage:
    """Damage to the file of one store.

    Attributes:
        kind: a name of DAMAGES.
        store: the folder of the store.
        at, to: positions in the file, as the kind needs them.
    """

    kind: str
    store: str
    at: int = 0
    to: int = 0

    def do(self, folder: Path, older: Path) -> None:
        """Damages the store in `folder`; `older` is the folder of its older copy."""
        DAMAGES[self.kind](self, folder, older)


def _flip(damage: Damage, folder: Path, _older: Path) -> None:
    with open(file_of(folder), "r+b") as file:
        file.seek(damage.at // 8)
        (byte,) = file.read(1)
        file.seek(damage.at // 8)
        file.write(bytes([byte ^ 1 << damage.at % 8]))


def _zero(damage: Damage, folder: Path, _older: Path) -> None:
    with open(file_of(folder), "r+b") as file:
        file.seek(damage.at)
        file.write(bytes(damage.to - damage.at))


def _swap(damage: Damage, folder: Path, _older: Path) -> None:
    with open(file_of(folder), "r+b") as file:
        pages = []
        for place in (damage.at, damage.to):
            file.seek(place)
            pages.append(file.read(PAGE))
        for place, page in zip((damage.to, damage.at), pages, strict=True):
            file.seek(place)
            file.write(page)


def _cut(damage: Damage, folder: Path, _older: Path) -> None:
    with open(file_of(folder), "r+b") as file:
        file.truncate(damage.at)


def _remove_file(_damage: Damage, folder: Path, _older: Path) -> None:
    file_of(folder).unlink()


def _remove_folder(_damage: Damage, folder: Path, _older: Path) -> None:
    shutil.rmtree(folder)


def _put_back(_damage: Damage, folder: Path, older: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(older, folder)


DAMAGES: dict[str, Callable[[Damage, Path, Path], None]] = {
    "flipped bit": _flip,
    "zeroed page": _zero,
    "zeroed sectors": _zero,
    "swapped pages": _swap,
    "cut": _cut,
    "missing file": _remove_file,
    "missing folder": _remove_folder,
    "older copy": _put_back,
}
WEIGHTS = {
    "flipped bit": 40,
    "zeroed page": 15,
    "zeroed sectors": 10,
    "swapped pages": 15,
    "cut": 12,
    "missing file": 2,
    "missing folder": 2,
    "older copy": 4,
}
"""How often each kind is drawn."""


def draw(stream: random.Random, store: str, used_bytes: int) -> Damage:
    """Damage anywhere in the used part of a store's file; half of the bits are in the first bytes of a page, which say
    what it holds."""
    (kind,) = stream.choices(list(WEIGHTS), list(WEIGHTS.values()))
    page = stream.randrange(used_bytes // PAGE) * PAGE
    if kind == "flipped bit":
        byte = page + stream.randrange(64 if stream.random() < 0.5 else PAGE)
        return Damage(kind, store, 8 * byte + stream.randrange(8))
    if kind == "zeroed page":
        return Damage(kind, store, page, page + PAGE)
    if kind == "zeroed sectors":
        first = stream.randrange(used_bytes // SECTOR)
        return Damage(kind, store, first * SECTOR, (first + stream.randint(1, 16)) * SECTOR)
    if kind == "swapped pages":
        return Damage(kind, store, page, stream.randrange(used_bytes // PAGE) * PAGE)
    if kind == "cut":
        return Damage(kind, store, stream.choice([0, page, stream.randrange(used_bytes)]))
    return Damage(kind, store)


def used_bytes(folder: Path) -> int:
    """The size of a store's file, without the room that is allocated ahead of it."""
    with lmdb.open(str(folder), readonly=True, lock=False) as environment:
        return int((environment.info()["last_pgno"] + 1) * environment.stat()["psize"])
