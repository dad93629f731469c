"""The operations and comparisons of a transaction on a table, and their form in calls. Pure.

1. `decode_operations` and `decode_comparisons` take what a peer sent: any other form is refused with the reason.
2. A transaction writes each key at most once, and has at most OPERATIONS_MAX operations and comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from gnomon.log.tables.changes import NO_TTL, TTL_MS_MAX
from gnomon.log.tables.key_entry import KEY_BYTES_MAX, KeyEntry

OPERATIONS_MAX: Final = 1_000
_INTEGERS: Final = range(-(1 << 63), 1 << 63)


class InvalidOperation(ValueError):
    """Operations or comparisons that no transaction may have; the text says what is wrong."""


class CompareTarget(Enum):
    """The field of a key's entry that a comparison looks at."""

    VALUE = "value"
    VERSION = "version"
    REVISION = "revision"
    CREATE_REVISION = "create_revision"


class CompareOperator(Enum):
    """The order in which the field and the operand must be."""

    EQUAL = "=="
    NOT_EQUAL = "!="
    LESS = "<"
    GREATER = ">"


class Comparison(NamedTuple):
    """A condition on one key. An absent key has version 0 and revision -1, and its value is None."""

    key: bytes
    target: CompareTarget
    operator: CompareOperator
    operand: bytes | int | None

    def holds(self, entry: KeyEntry) -> bool:
        """Whether it holds for the entry of its key; None is neither less nor greater than a value."""
        found: Any = getattr(entry, self.target.value)
        if self.target is CompareTarget.VALUE and not entry.version:
            found = None
        if self.operator is CompareOperator.EQUAL:
            return bool(found == self.operand)
        if self.operator is CompareOperator.NOT_EQUAL:
            return bool(found != self.operand)
        if found is None or self.operand is None:
            return False
        return bool(found < self.operand if self.operator is CompareOperator.LESS else found > self.operand)

    def never_holds_again(self, entry: KeyEntry) -> bool:
        """Whether no later entry of the key can meet it either, given that this one does not: revisions only rise."""
        if self.target is not CompareTarget.REVISION or self.operator is not CompareOperator.EQUAL:
            return False
        return isinstance(self.operand, int) and 0 <= self.operand < entry.revision

    def encode(self) -> list[Any]:
        """The form in calls."""
        return [self.key, self.target.value, self.operator.value, self.operand]


class PutKey(NamedTuple):
    """Puts a value; answered with the revision."""

    key: bytes
    value: bytes
    ttl_ms: int = NO_TTL


class DeleteKey(NamedTuple):
    """Deletes a key; answered with the revision of the deletion, -1 if the key was absent."""

    key: bytes


class GetKey(NamedTuple):
    """Reads a key; answered with its stored entry, None if it is absent."""

    key: bytes


class IncrementKey(NamedTuple):
    """Adds to a value that is a decimal number, 0 if the key is absent; answered with revision and sum.

    The value expires when it would have expired before.
    """

    key: bytes
    by: int = 1


KeyOperation: TypeAlias = PutKey | DeleteKey | GetKey | IncrementKey
_KINDS: Final[dict[type, str]] = {PutKey: "put", DeleteKey: "delete", GetKey: "get", IncrementKey: "increment"}


def encode_operations(operations: Sequence[KeyOperation]) -> list[list[Any]]:
    """The form in calls."""
    return [[_KINDS[type(operation)], *operation] for operation in operations]


def decode_operations(items: Any) -> list[KeyOperation]:
    """Undoes `encode_operations`.

    Raises:
        InvalidOperation: they are in another form, too many, or write a key twice.
    """
    found = [_operation(item) for item in _listed(items)]
    check_operations(found)
    return found


def check_operations(operations: Sequence[KeyOperation]) -> None:
    """Checks the operations of one branch.

    Raises:
        InvalidOperation: they are too many, or write a key twice.
    """
    written: set[bytes] = set()
    for operation in operations:
        if not isinstance(operation, GetKey):
            if operation.key in written:
                raise InvalidOperation(f"a transaction writes a key once, and not {operation.key!r:.80} twice")
            written.add(operation.key)


def decode_comparisons(items: Any) -> list[Comparison]:
    """Undoes `Comparison.encode` for a list of them.

    Raises:
        InvalidOperation: they are in another form.
    """
    return [_comparison(item) for item in _listed(items)]


def _listed(items: Any) -> list[Any]:
    if type(items) is not list:
        raise InvalidOperation(f"operations and comparisons are lists, not {type(items).__name__}")
    if len(items) > OPERATIONS_MAX:
        raise InvalidOperation(f"a transaction has at most {OPERATIONS_MAX} operations, not {len(items)}")
    return items


def _operation(item: Any) -> KeyOperation:
    if type(item) is not list or not item:
        raise InvalidOperation("an operation is a list that begins with its kind")
    kind, fields = item[0], item[1:]
    kinds = tuple(map(type, fields))
    if kind == "put" and kinds == (bytes, bytes, int):
        key, value, ttl_ms = fields
        if not 0 <= ttl_ms <= TTL_MS_MAX:
            raise InvalidOperation(f"a time to live is 1 to {TTL_MS_MAX} ms, and 0 for none, not {ttl_ms}")
        return PutKey(checked_key(key), value, ttl_ms)
    if kind == "delete" and kinds == (bytes,):
        return DeleteKey(checked_key(fields[0]))
    if kind == "get" and kinds == (bytes,):
        return GetKey(checked_key(fields[0]))
    if kind == "increment" and kinds == (bytes, int):
        if fields[1] not in _INTEGERS:
            raise InvalidOperation(f"an increment is a number of 64 bits, not {fields[1]}")
        return IncrementKey(checked_key(fields[0]), fields[1])
    raise InvalidOperation(f"{kind!r:.40} with {len(fields)} fields of these types is no operation")


def _comparison(item: Any) -> Comparison:
    if type(item) is not list or len(item) != 4:
        raise InvalidOperation("a comparison is a key, a target, an operator and an operand")
    key, target, operator, operand = item
    try:
        found = Comparison(checked_key(key), CompareTarget(target), CompareOperator(operator), operand)
    except ValueError as error:
        raise InvalidOperation(str(error)) from None
    check_operand(found)
    return found


def check_operand(comparison: Comparison) -> None:
    """Checks the type of a comparison's operand.

    Raises:
        InvalidOperation: values are compared with bytes or None, all else with numbers.
    """
    operand = comparison.operand
    if comparison.target is CompareTarget.VALUE:
        if operand is not None and type(operand) is not bytes:
            raise InvalidOperation(
                f"a value is compared with bytes, or with None for absence, not with {operand!r:.60}"
            )
    elif type(operand) is not int or operand not in _INTEGERS:
        raise InvalidOperation(f"a {comparison.target.value} is compared with a number, not with {operand!r:.60}")


def checked_key(key: Any) -> bytes:
    """The key.

    Raises:
        InvalidOperation: it is no bytes, or has more than KEY_BYTES_MAX of them.
    """
    if type(key) is not bytes:
        raise InvalidOperation(f"a key is bytes, not {type(key).__name__}")
    if len(key) > KEY_BYTES_MAX:
        raise InvalidOperation(f"the key has {len(key)} bytes: {KEY_BYTES_MAX} are allowed")
    return key
