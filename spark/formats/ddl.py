"""Columns as text in Spark's DDL, such as `a BIGINT, st STRUCT<x: INT NOT NULL>`, without a JVM. Pure.

1. A text that `ddl_of` writes is read as the same columns, except for fields of lists and maps, which may be null.
2. Types and words are read in any case of letters; names keep theirs. A comment is read over.
3. A text that cannot be read is refused with the place of the first wrong word.
4. Two columns, or two members of a struct, never have the same name.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NoReturn

import pyarrow as pa

from gnomon.spark.formats.decoder import BadFormat

DEPTH_MAX: Final = 64
DECIMAL_DIGITS_MAX: Final = 38
SHOWN_CHARACTERS_MAX: Final = 200

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD: Final = re.compile(
    r"""\s*(?:
    (?P<name>`(?:[^`]|``)*`)
    |(?P<text>(?:'(?:[^'\\]|\\.)*')+|(?:"(?:[^"\\]|\\.)*")+)
    |(?P<word>\w+)
    |(?P<sign>[<>(),:])
    )""",
    re.VERBOSE | re.DOTALL,
)
_TYPES: Final = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
_ALIASES: Final = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
}


class BadDdl(BadFormat):
    """A text is not DDL of columns; the text of the error names the place."""


def ddl_of(schema: pa.Schema) -> str:
    """The columns as DDL.

    Raises:
        BadFormat: Spark's DDL has no type for a column.
    """
    return ", ".join(
        f"{_name(field.name)} {_type(field.type, field.name)}{'' if field.nullable else ' NOT NULL'}"
        for field in schema
    )


def schema_of_ddl(text: str) -> pa.Schema:
    """The columns of a DDL text; the parentheses around it and a colon after a name may be left out.

    Raises:
        BadDdl: the text cannot be read.
    """
    reader = _Reader(text)
    inside = reader.take("(")
    fields = reader.fields(0)
    if inside:
        reader.expect(")")
    reader.end()
    return pa.schema(fields)


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _type(kind: pa.DataType, place: str) -> str:
    for name, known in _TYPES.items():
        if kind == known:
            return name
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind) and kind.num_fields:
        members = ", ".join(
            f"{_name(each.name)}: {_type(each.type, f'{place}.{each.name}')}{'' if each.nullable else ' NOT NULL'}"
            for each in kind
        )
        return f"STRUCT<{members}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{_type(kind.value_type, f'{place}[]')}>"
    if pa.types.is_map(kind):
        return f"MAP<{_type(kind.key_type, f'{place}{{}}')}, {_type(kind.item_type, f'{place}{{}}')}>"
    raise BadFormat(f"column {place!r}: Spark's DDL has no type for {kind}")


class _Word(NamedTuple):
    kind: str
    """`name` in back-quotes, `text`, `word`, `sign`, or `end`."""
    text: str
    start: int


class _Reader:
    """Reads a text word by word."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = _words(text)
        self._at = 0

    def fields(self, depth: int) -> list[pa.Field]:
        """Fields with commas between them, at least one."""
        fields: list[pa.Field] = []
        names: set[str] = set()
        while True:
            word = self._next()
            if word.kind not in ("name", "word"):
                self._refuse(word, "a name is expected")
            name = word.text[1:-1].replace("``", "`") if word.kind == "name" else word.text
            if name in names or not name:
                self._refuse(word, "the name is used before" if name else "a name is expected")
            names.add(name)
            self.take(":")
            kind = self.type(depth)
            required = self.take("NOT")
            if required:
                self.expect("NULL")
            if self.take("COMMENT") and (word := self._next()).kind != "text":
                self._refuse(word, "a comment in quotes is expected")
            fields.append(pa.field(name, kind, nullable=not required))
            if not self.take(","):
                return fields

    def type(self, depth: int) -> pa.DataType:
        """A type."""
        word = self._next()
        if depth > DEPTH_MAX:
            self._refuse(word, f"at most {DEPTH_MAX} types may be inside of each other")
        name = _ALIASES.get(word.text.upper(), word.text.upper())
        if word.kind != "word":
            self._refuse(word, "a type is expected")
        if name == "DECIMAL":
            return self._decimal()
        if name in ("STRUCT", "ARRAY", "MAP"):
            return self._nested(name, depth + 1)
        if name not in _TYPES:
            self._refuse(
                word, f"there is no such type; there are {', '.join([*_TYPES, 'DECIMAL'])}, STRUCT, ARRAY, MAP"
            )
        return _TYPES[name]

    def take(self, text: str) -> bool:
        """Reads a sign or a word if it is the next one."""
        word = self._words[self._at]
        found = word.kind in ("word", "sign") and word.text.upper() == text
        self._at += found
        return found

    def expect(self, text: str) -> None:
        """Reads a sign or a word."""
        if not self.take(text):
            self._refuse(self._next(), f"{text!r} is expected")

    def end(self) -> None:
        """Refuses further words."""
        word = self._next()
        if word.kind != "end":
            self._refuse(word, "the end or ',' is expected")

    def _nested(self, name: str, depth: int) -> pa.DataType:
        self.expect("<")
        found: pa.DataType
        if name == "STRUCT":
            found = pa.struct(self.fields(depth))
        elif name == "ARRAY":
            found = pa.list_(self.type(depth))
        else:
            key = self.type(depth)
            self.expect(",")
            found = pa.map_(key, self.type(depth))
        self.expect(">")
        return found

    def _decimal(self) -> pa.DataType:
        digits, scale = 10, 0
        if self.take("("):
            digits = self._number(1, DECIMAL_DIGITS_MAX)
            if self.take(","):
                scale = self._number(0, digits)
            self.expect(")")
        return pa.decimal128(digits, scale)

    def _number(self, least: int, most: int) -> int:
        word = self._next()
        if not re.fullmatch("[0-9]{1,3}", word.text) or not least <= int(word.text) <= most:
            self._refuse(word, f"a number from {least} to {most} is expected")
        return int(word.text)

    def _next(self) -> _Word:
        word = self._words[self._at]
        self._at += word.kind != "end"
        return word

    def _refuse(self, word: _Word, reason: str) -> NoReturn:
        place = f"at {word.text!r}" if word.kind != "end" else "at the end"
        raise _unreadable(self._text, f"{place}, character {word.start + 1}: {reason}")


def _unreadable(text: str, reason: str) -> BadDdl:
    shown = text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "…"
    return BadDdl(f"the columns {shown!r} cannot be read {reason}")


def _words(text: str) -> list[_Word]:
    words = []
    at = 0
    while (found := _WORD.match(text, at)) is not None:
        kind = found.lastgroup
        assert kind is not None, "each part of the pattern has a name"
        words.append(_Word(kind, found[kind], found.start(kind)))
        at = found.end()
    rest = text[at:].strip()
    start = len(text) - len(text[at:].lstrip())
    if rest:
        raise _unreadable(text, f"at {rest[:10]!r}, character {start + 1}: no word begins so")
    return [*words, _Word("end", "", len(text))]
