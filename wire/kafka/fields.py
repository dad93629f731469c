"""Declares messages: kinds of value, fields with their versions, structs and messages.

    class HeartbeatRequest(Message, key=12, versions=(0, 4), flexible=4):
        group_id: str = string()
        generation_id: int = int32()
        member_id: str = string()
        group_instance_id: str | None = string.nullable(since=3)

1. One class serves all versions; its fields are in wire order, and the form of a field in a version follows from its
   declaration alone.
2. A field that a version lacks has its default after decoding, and encoding leaves the field out.
3. If that field is `essential` and holds another value than its default, encoding fails (`InexpressibleMessage`):
   leaving the value out would change the meaning.
4. A class costs microseconds until it is used: its constructor and codecs are compiled at their first call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar, cast, dataclass_transform
from uuid import UUID

from gnomon.wire.kafka.primitives import Buffer, Reader, Writer

T = TypeVar("T")
S = TypeVar("S", bound="Struct")

LATEST = 32_767
"""An `until` that no version reaches."""
NEVER = LATEST + 1
"""A `since` that no version reaches."""
NO_UUID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct: the versions that have it, the versions where it may be null, and its default.

    `tag` is the KIP-482 tag number of a tagged field. `default` is None for null, an empty list for arrays.
    """

    name: str
    kind: FieldKind[Any] | type[Struct]
    array: bool
    since: int
    until: int
    nullable_since: int
    tag: int | None
    default: Any
    essential: bool

    def present(self, version: int) -> bool:
        """Whether the version has the field."""
        return self.since <= version <= self.until

    def nullable(self, version: int) -> bool:
        """Whether the field may be null in the version."""
        return version >= self.nullable_since

    def fresh_default(self) -> Any:
        """A fresh copy of the default."""
        if isinstance(self.default, list):
            return []
        return self.default() if isinstance(self.default, type) else self.default


class FieldKind(Generic[T]):
    """A primitive type; calling it declares a field of that type.

    `code` is the `struct` code of a fixed-size kind, empty for the others. A field that is not `compact` keeps the
    old length prefix in flexible versions too.
    """

    def __init__(self, name: str, code: str, zero: T, compact: bool = True) -> None:
        self.name, self.code, self.zero, self.compact = name, code, zero, compact

    def __repr__(self) -> str:
        return self.name

    def __call__(
        self,
        *,
        since: int = 0,
        until: int = LATEST,
        default: T | None = None,
        tag: int | None = None,
        essential: bool = False,
    ) -> T:
        """Declares a field that is never null; its default is zero, empty or false unless given."""
        value = self.zero if default is None else default
        return cast("T", Field("", self, False, since, until, NEVER, tag, value, essential))

    def nullable(
        self,
        *,
        since: int = 0,
        until: int = LATEST,
        nullable_since: int = 0,
        default: T | None = None,
        tag: int | None = None,
        essential: bool = False,
    ) -> T | None:
        """Declares a field that may be null from version `nullable_since` on; its default is null unless given."""
        return cast("T", Field("", self, False, since, until, nullable_since, tag, default, essential))


boolean = FieldKind("bool", "?", False)
int8 = FieldKind("int8", "b", 0)
int16 = FieldKind("int16", "h", 0)
uint16 = FieldKind("uint16", "H", 0)
int32 = FieldKind("int32", "i", 0)
uint32 = FieldKind("uint32", "I", 0)
int64 = FieldKind("int64", "q", 0)
float64 = FieldKind("float64", "d", 0.0)
uuid = FieldKind("uuid", "", NO_UUID)
string = FieldKind("string", "", "")
legacy_string = FieldKind("string", "", "", compact=False)
"""The client id of a request header: readable before the version is understood."""
octets = FieldKind("bytes", "", b"")
records: FieldKind[Buffer] = FieldKind("records", "", b"")
"""Record batches: decoded as a view of the buffer that was given, not copied."""


def array(
    of: FieldKind[T] | type[T], *, since: int = 0, until: int = LATEST, tag: int | None = None, essential: bool = False
) -> list[T]:
    """Declares an array that is never null, empty by default."""
    return cast("list[T]", Field("", cast("Any", of), True, since, until, NEVER, tag, [], essential))


def nullable_array(
    of: FieldKind[T] | type[T], *, since: int = 0, until: int = LATEST, nullable_since: int = 0, essential: bool = False
) -> list[T] | None:
    """Declares an array that may be null from version `nullable_since` on; empty by default, as in Kafka's schemas."""
    return cast("list[T]", Field("", cast("Any", of), True, since, until, nullable_since, None, [], essential))


def struct(of: type[S], *, since: int = 0, until: int = LATEST, tag: int | None = None) -> S:
    """Declares one nested struct; by default each of its fields has its default."""
    return cast("S", Field("", of, False, since, until, NEVER, tag, of, False))


def nullable_struct(of: type[S], *, since: int = 0, until: int = LATEST) -> S | None:
    """Declares one nested struct that may be null, null by default."""
    return cast("S", Field("", of, False, since, until, since, None, None, False))


@dataclass_transform(kw_only_default=True)
class _StructType(type):
    """Turns the declarations of a class body into its fields and slots."""

    FIELDS: tuple[Field, ...]

    def __new__(mcls, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any) -> _StructType:
        fields = tuple(replace(value, name=key) for key, value in body.items() if isinstance(value, Field))
        for field in fields:
            del body[field.name]
        body["__slots__"] = tuple(field.name for field in fields)
        body["FIELDS"] = fields
        return super().__new__(mcls, name, bases, body, **options)


class Struct(metaclass=_StructType):
    """A sequence of fields inside a message. Constructed by keyword; a field that is not given has its default."""

    FIELDS: ClassVar[tuple[Field, ...]]

    def __init__(self, **values: object) -> None:
        cls = type(self)
        cls.__init__ = _initializer(cls)  # type: ignore[method-assign]  # invariant 4
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in self.FIELDS)})"


def _initializer(cls: type[Struct]) -> Any:
    names = {f"default_{field.name}": field.default for field in cls.FIELDS}
    parameters, body = ["self", "*"], []
    for field in cls.FIELDS:
        parameters.append(f"{field.name}=default_{field.name}")
        made_new = isinstance(field.default, list | type)
        value = f"default_{field.name}.fresh() if {field.name} is default_{field.name} else {field.name}"
        body.append(f"    self.{field.name} = {value if made_new else field.name}")
        if made_new:
            names[f"default_{field.name}"] = _Fresh(field)
    source = f"def __init__({', '.join(parameters)}):\n" + "\n".join(body)
    exec(compile(source, f"<{cls.__name__}.__init__>", "exec"), names)  # noqa: S102 - source made of field names only
    return names["__init__"]


class _Fresh:
    """The default of a mutable field: every message gets its own value."""

    __slots__ = ("fresh",)

    def __init__(self, field: Field) -> None:
        self.fresh = field.fresh_default


class ProtocolMessage(Struct):
    """A complete struct: a request, a response, a header or a record.

    KEY is the API key (None where it has none), VERSIONS the first and last version, FLEXIBLE the first version with
    compact lengths and tagged fields (KIP-482).
    """

    KEY: ClassVar[int | None]
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE: ClassVar[int]
    CODECS: ClassVar[dict[int, tuple[Reader, Writer]]]
    """Codecs made so far, by version."""

    def __init_subclass__(cls, *, versions: tuple[int, int], flexible: int = NEVER, key: int | None = None) -> None:
        cls.KEY, cls.VERSIONS, cls.FLEXIBLE, cls.CODECS = key, versions, flexible, {}
