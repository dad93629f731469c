"""The codec of Kafka messages: `encode` and `decode` for every class that `fields` declares, in every version.

1. Decoding reads nothing outside the buffer, and bad input raises `MalformedMessage` and nothing else.
2. Memory follows the bytes that are there, never a declared length or count. A message with more elements than the
   caller allows is refused before the element beyond is made.
3. Unknown tagged fields are skipped (KIP-482); a known one must fill exactly the size it declares.
4. `encode` raises `InexpressibleMessage` for a value that the version cannot express. The one exception is a field that
   the version lacks and that is not `essential`: the field is left out.
5. A codec is compiled once per class and version, at its first use.

Compiling makes one Python function per struct and direction: adjacent fixed-size fields become one `struct` call, each
other field one call of a reader or writer from `primitives`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from struct import Struct as Packed
from struct import error as struct_error
from typing import Any, TypeVar, cast

from gnomon.wire.kafka import primitives
from gnomon.wire.kafka.fields import (
    LATEST,
    NEVER,
    NO_UUID,
    Field,
    FieldKind,
    ProtocolMessage,
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    legacy_string,
    nullable_array,
    nullable_struct,
    octets,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)
from gnomon.wire.kafka.primitives import NO_BOUND, Buffer, FieldError, Reader, Writer

__all__ = [
    "LATEST",
    "NEVER",
    "NO_UUID",
    "Buffer",
    "Field",
    "FieldKind",
    "InexpressibleMessage",
    "MalformedMessage",
    "ProtocolMessage",
    "Struct",
    "TooManyElements",
    "array",
    "boolean",
    "check_end",
    "decode",
    "decode_prefixed",
    "element_count",
    "encode",
    "encode_prefixed",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "legacy_string",
    "nullable_array",
    "nullable_struct",
    "octets",
    "records",
    "string",
    "struct",
    "uint16",
    "uint32",
    "uuid",
]

M = TypeVar("M", bound=ProtocolMessage)


class MalformedMessage(ValueError):
    """The bytes are not such a message; the text names message, version, field and byte position."""


class TooManyElements(MalformedMessage):
    """The message has more array elements than the caller allows."""


class InexpressibleMessage(ValueError):
    """A version cannot express the message; the text names the field and the reason."""


def decode(
    cls: type[M], version: int, buffer: Buffer, offset: int = 0, *, elements_max: int = NO_BOUND
) -> tuple[M, int]:
    """Decodes one message.

    Args:
        cls: the message class.
        version: one within `cls.VERSIONS`.
        buffer: bytes that hold the message; `records` fields of the result are views of it.
        offset: where the message begins, in bytes.
        elements_max: bound on the array elements and tagged fields of the whole message.

    Returns:
        The message and the position of the first byte after it.

    Raises:
        MalformedMessage: the bytes are not such a message.
        TooManyElements: it has more than `elements_max`.
        ValueError: the class has no such version.
    """
    read, _ = cls.CODECS.get(version) or _message_codec(cls, version)
    primitives.allow_elements(elements_max)
    try:
        return read(memoryview(buffer), offset)
    except FieldError as fault:
        where = f"{cls.__name__} v{version}: {fault.path} at byte {fault.at}"
        kind = TooManyElements if primitives.elements_taken() > elements_max else MalformedMessage
        raise kind(f"{where}: {fault.why}") from None


def encode(message: ProtocolMessage, version: int) -> bytes:
    """Encodes one message.

    Raises:
        InexpressibleMessage: the version cannot express the message: null in a field that has no null, a number out
            of range, an essential field that the version lacks.
        ValueError: the class has no such version.
    """
    cls = type(message)
    _, write = cls.CODECS.get(version) or _message_codec(cls, version)
    out = bytearray()
    try:
        write(out, message)
    except FieldError as fault:
        raise InexpressibleMessage(f"{cls.__name__} v{version}: {fault.path}: {fault.why}") from None
    return bytes(out)


_ARRAYS: dict[type[Struct], list[str]] = {}
"""The names of the array fields of each class that `element_count` has met."""


def element_count(message: Struct, most: int) -> int:
    """The number of array elements of a message, nested ones included; some number above `most` if there are more."""
    arrays = _ARRAYS.get(type(message))
    if arrays is None:
        arrays = _ARRAYS[type(message)] = [item.name for item in message.FIELDS if item.array]
    count = 0
    for name in arrays:
        items = getattr(message, name)
        if items:
            count += len(items)
            if isinstance(items[0], Struct):
                for item in items:
                    if count > most:
                        return count
                    count += element_count(item, most - count)
    return count


_PREFIX = Packed(">h")


def encode_prefixed(message: ProtocolMessage, version: int) -> bytes:
    """`encode` after its version as int16: the form in which Kafka stores records and member metadata."""
    return _PREFIX.pack(version) + encode(message, version)


def decode_prefixed(cls: type[M], buffer: Buffer) -> tuple[M, int]:
    """Decodes the whole of a buffer that `encode_prefixed` made.

    Returns:
        The message and its version.

    Raises:
        MalformedMessage: no such message, a version that the class does not have, or bytes after the end.
    """
    if len(buffer) < _PREFIX.size:
        raise MalformedMessage(f"{cls.__name__}: cut short before its version, {len(buffer)} bytes are left")
    (version,) = _PREFIX.unpack_from(buffer)
    first, last = cls.VERSIONS
    if not first <= version <= last:
        raise MalformedMessage(f"{cls.__name__}: version {version} is none of {first} to {last}")
    message, end = decode(cls, version, buffer, _PREFIX.size)
    check_end(message, buffer, end)
    return message, version


def check_end(message: ProtocolMessage, buffer: Buffer, end: int) -> None:
    """Checks that a message fills its buffer.

    Raises:
        MalformedMessage: bytes follow the message that ended at `end`.
    """
    if end != len(buffer):
        name = type(message).__name__
        raise MalformedMessage(f"{name}: {len(buffer) - end} bytes follow its end at byte {end}")


def _message_codec(cls: type[ProtocolMessage], version: int) -> tuple[Reader, Writer]:
    first, last = cls.VERSIONS
    if not first <= version <= last:
        raise ValueError(f"{cls.__name__} has versions {first} to {last}, not {version}")
    codec = cls.CODECS[version] = struct_codec(cls, version, version >= cls.FLEXIBLE)
    return codec


def struct_codec(cls: type[Struct], version: int, flexible: bool) -> tuple[Reader, Writer]:
    """Compiles reader and writer of one struct in one version."""
    present = [item for item in cls.FIELDS if item.present(version)]
    plain = [item for item in present if item.tag is None]
    tagged = sorted((item for item in present if item.tag is not None), key=lambda item: item.tag or 0)
    reading, writing = _SchemaText(cls, version), _SchemaText(cls, version)
    for code_known, group in groupby(plain, key=lambda item: bool(_fixed_code(item))):
        if code_known:
            _add_fixed(reading, writing, list(group))
        else:
            for item in group:
                _add_call(reading, writing, item, field_codec(item, version, flexible))
    if flexible:
        _add_tagged(reading, writing, [(item, field_codec(item, version, True)) for item in tagged])
    for item in cls.FIELDS:
        if not item.present(version):
            _add_absent(reading, writing, item)
    return reading.reader(), writing.writer()


def field_codec(item: Field, version: int, flexible: bool) -> tuple[Reader, Writer]:
    """Reader and writer of one field's value, null and array included."""
    nullable, kind = item.nullable(version), item.kind
    if not item.array:
        return _value_codec(kind, version, flexible, nullable)
    if kind is int32 and not nullable:
        return primitives.int32_array_codec(flexible)
    read, write = _value_codec(kind, version, flexible, nullable=False)
    return primitives.array_codec(read, write, flexible, nullable)


def _value_codec(
    kind: FieldKind[Any] | type[Struct], version: int, flexible: bool, nullable: bool
) -> tuple[Reader, Writer]:
    if isinstance(kind, type):
        codec = struct_codec(kind, version, flexible)
        return primitives.nullable_struct_codec(*codec) if nullable else codec
    if kind.code:
        return primitives.fixed_codec(kind.code)
    if kind is uuid:
        return primitives.read_uuid, primitives.write_uuid
    if kind.name == string.name:
        return primitives.text_codec(flexible and kind.compact, nullable)
    assert kind in (octets, records), kind
    return primitives.bytes_codec(flexible, nullable, view_only=kind is records)


def _fixed_code(item: Field) -> str:
    return item.kind.code if isinstance(item.kind, FieldKind) and not item.array else ""


@dataclass
class _SchemaText:
    """A function under construction: its lines, the names they use, and the field (`step`) each line works on."""

    cls: type[Struct]
    version: int
    lines: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    def bind(self, value: Any) -> str:
        """A name for a value that the lines may use."""
        name = f"x{len(self.names)}"
        self.names[name] = value
        return name

    def step(self, what: str, *lines: str) -> None:
        """Lines that work on one field; a fault in them is reported under `what`."""
        self.lines.append(f"step = {len(self.steps)}")
        self.lines += lines
        self.steps.append(what)

    def reader(self) -> Reader:
        """read(view, at) -> (struct, position after it)."""
        body = [f"it = {self.bind(object.__new__)}({self.bind(self.cls)})", *self.lines]
        return cast(
            "Reader", self._compile("view, at", body, f"{self.bind(_UNREADABLE)} as error", "at", "return it, at")
        )

    def writer(self) -> Writer:
        """write(out, struct)."""
        return cast("Writer", self._compile("out, it", self.lines, f"{self.bind(_UNWRITABLE)} as error", "0", "return"))

    def _compile(self, parameters: str, body: list[str], wrong: str, at: str, result: str) -> Any:
        fault, steps = self.bind(FieldError), self.bind(tuple(self.steps))
        lines = [
            f"def run({parameters}):",
            "    try:",
            "        step = 0",
            *(f"        {line}" for line in body),
            f"    except {fault} as fault: raise fault.inside({steps}[step]) from None",
            f"    except {wrong}: raise {self.bind(_fault)}(error, {at}, {steps}[step]) from None",
            f"    {result}",
        ]
        where = f"<{self.cls.__name__} v{self.version}>"
        exec(compile("\n".join(lines), where, "exec"), self.names)  # noqa: S102 - made of declared field names only
        return self.names["run"]


_UNREADABLE = (struct_error, IndexError, UnicodeError)
_UNWRITABLE = (struct_error, UnicodeError, AttributeError, TypeError)


def _fault(error: Exception, at: int, step: str) -> FieldError:
    # When reading, `struct` and indexing raise for one reason: the view ends too early.
    why = "cut short" if isinstance(error, IndexError) or "unpack_from" in str(error) else str(error)
    return FieldError(why, at).inside(step)


def _add_fixed(reading: _SchemaText, writing: _SchemaText, group: list[Field]) -> None:
    packed = Packed(">" + "".join(_fixed_code(item) for item in group))
    targets = ", ".join(f"it.{item.name}" for item in group)
    what = ", ".join(item.name for item in group)
    reading.step(what, f"{targets}, = {reading.bind(packed.unpack_from)}(view, at)", f"at += {packed.size}")
    writing.step(what, f"out += {writing.bind(packed.pack)}({targets})")


def _add_call(reading: _SchemaText, writing: _SchemaText, item: Field, codec: tuple[Reader, Writer]) -> None:
    read, write = codec
    reading.step(item.name, f"it.{item.name}, at = {reading.bind(read)}(view, at)")
    writing.step(item.name, f"{writing.bind(write)}(out, it.{item.name})")


def _default_expression(source: _SchemaText, item: Field) -> str:
    if isinstance(item.default, list):
        return "[]"
    return f"{source.bind(item.default)}{'()' if isinstance(item.default, type) else ''}"


def _add_absent(reading: _SchemaText, writing: _SchemaText, item: Field) -> None:
    reading.lines.append(f"it.{item.name} = {_default_expression(reading, item)}")
    if item.essential:
        why = "this version has no field for it, and leaving it out would change the meaning"
        default = _default_expression(writing, item)
        writing.step(item.name, f"if it.{item.name} != {default}: raise {writing.bind(FieldError)}({why!r})")


def _add_tagged(reading: _SchemaText, writing: _SchemaText, tagged: list[tuple[Field, tuple[Reader, Writer]]]) -> None:
    for item, _ in tagged:
        reading.lines.append(f"it.{item.name} = {_default_expression(reading, item)}")
    readers = {item.tag: (item.name, codec[0]) for item, codec in tagged}
    skip = f"at = {reading.bind(_read_tagged)}(view, at, it, {reading.bind(readers)})"
    # Almost no message carries a tagged field, so one byte decides.
    reading.step("tagged fields", "if view[at] == 0: at += 1", f"else: {skip}")
    if not tagged:
        writing.step("tagged fields", "out.append(0)")
        return
    writers = [(item.tag, item.name, item.fresh_default(), codec[1]) for item, codec in tagged]
    writing.step("tagged fields", f"{writing.bind(_write_tagged)}(out, it, {writing.bind(writers)})")


def _read_tagged(view: memoryview, at: int, it: Struct, readers: dict[int, tuple[str, Reader]]) -> int:
    count, at = primitives.read_uvarint(view, at)
    primitives.take_elements(count, at)
    for _ in range(count):
        tag, at = primitives.read_uvarint(view, at)
        size, at = primitives.read_uvarint(view, at)
        end = at + size
        if end > len(view):
            raise FieldError(f"tag {tag} declares {size} bytes, {len(view) - at} are left", at)
        if tag in readers:
            _read_tag(view[:end], at, it, *readers[tag])
        at = end
    return at


def _read_tag(view: memoryview, at: int, it: Struct, name: str, read: Reader) -> None:
    try:
        value, end = read(view, at)
    except FieldError as fault:
        raise fault.inside(name) from None
    except _UNREADABLE as error:
        raise _fault(error, at, name) from None
    if end != len(view):
        raise FieldError(f"ends {len(view) - end} bytes before the size of its tag", end).inside(name)
    setattr(it, name, value)


def _write_tagged(out: bytearray, it: Struct, writers: list[tuple[int, str, Any, Writer]]) -> None:
    said: list[tuple[int, bytearray]] = []
    for tag, name, default, write in writers:
        value = getattr(it, name)
        if value != default:
            said.append((tag, bytearray()))
            try:
                write(said[-1][1], value)
            except FieldError as fault:
                raise fault.inside(name) from None
            except _UNWRITABLE as error:
                raise _fault(error, 0, name) from None
    primitives.write_uvarint(out, len(said))
    for tag, content in said:
        primitives.write_uvarint(out, tag)
        primitives.write_uvarint(out, len(content))
        out += content
