"""A field of a key's entry, whose comparisons are conditions of a transaction. Pure."""

from __future__ import annotations

from typing import Any

from gnomon.log.tables.operations import CompareOperator, CompareTarget, Comparison


class Compared:
    """`table.value(b"k") == b"v"` is a condition, not a boolean."""

    __hash__ = None  # type: ignore[assignment]  # equality makes a condition

    def __init__(self, key: bytes, target: CompareTarget) -> None:
        self._key = key
        self._target = target

    def __eq__(self, operand: object) -> Any:
        return self._comparison(CompareOperator.EQUAL, operand)

    def __ne__(self, operand: object) -> Any:
        return self._comparison(CompareOperator.NOT_EQUAL, operand)

    def __lt__(self, operand: bytes | int) -> Comparison:
        return self._comparison(CompareOperator.LESS, operand)

    def __gt__(self, operand: bytes | int) -> Comparison:
        return self._comparison(CompareOperator.GREATER, operand)

    def _comparison(self, operator: CompareOperator, operand: Any) -> Comparison:
        return Comparison(self._key, self._target, operator, operand)
