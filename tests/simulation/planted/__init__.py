"""The planted bugs, all together."""

from __future__ import annotations

from planted import front, partitions, stores
from planted.planted_bug import BUGS, PlantedBug

__all__ = ["BUGS", "PlantedBug", "front", "partitions", "stores"]
