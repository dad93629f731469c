"""Compiles the codec of a struct in one version: one Python function per direction.

Adjacent fixed-size fields become one `struct` call, each other field one call of a reader or writer from `primitives`.

1. A reader looks at no byte beyond its view. Any fault of the bytes is a `FieldError` that names the field.
2. A writer writes the whole struct, or raises a `FieldError` that names the field.
3. The text of a function has the names of declared fields, and nothing else that a declaration or a message gives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from struct import Struct as Packed
from struct import error as struct_error
from typing import Any, cast

from gnomon.wire.kafka import primitives
from gnomon.wire.kafka.fields import Field, FieldKind, Struct, int32, octets, records, string, uuid
from gnomon.wire.kafka.primitives import FieldError, Reader, Writer


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
