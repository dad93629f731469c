"""Placeholder until the coordinator stands."""

from __future__ import annotations
from typing import Any


class GroupHandlers:
    def __init__(self, broker: Any) -> None: ...
    def handlers(self) -> dict[int, Any]:
        return {}
