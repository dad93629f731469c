"""The sorted map of a table in memory."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.broker.tables.engines.memory_engine import ENTRY_BYTES, MemoryEngine, prefix_end
from gnomon.broker.tables.engines.tables_memory import TablesMemory
from gnomon.log.tables.key_entry import NEVER, pack_entry

KEYS = st.binary(max_size=3) | st.sampled_from([b"\xff" * 500, b"\xff" * 499, b"\0" * 500])


def packed(value: bytes, expires_ms: int = NEVER) -> bytes:
    return pack_entry(value, 1, 1, 1, expires_ms)


def filled(keys: list[bytes]) -> MemoryEngine:
    engine = MemoryEngine(TablesMemory(1 << 30))
    for key in keys:
        engine.put(key, packed(b"of " + key), engine.get(key))
    return engine


@settings(deadline=None)
@given(st.lists(KEYS), KEYS)
def test_a_prefix_finds_exactly_its_keys_in_their_order(keys: list[bytes], prefix: bytes) -> None:
    engine = filled(keys)
    expected = sorted({key for key in keys if key.startswith(prefix)})
    assert list(engine.scan(prefix, prefix_end(prefix))) == [(key, packed(b"of " + key)) for key in expected]
    assert engine.count(prefix, prefix_end(prefix)) == (len(expected), None)


@settings(deadline=None)
@given(st.lists(KEYS), KEYS)
def test_a_scan_goes_on_after_a_key_without_a_gap_or_a_repeat(keys: list[bytes], after: bytes) -> None:
    found = [key for key, _ in filled(keys).scan(after + b"\0", None)]
    assert found == sorted({key for key in keys if key > after})


@settings(deadline=None)
@given(st.lists(st.tuples(KEYS, st.binary(max_size=9) | st.none())))
def test_the_used_bytes_are_those_of_the_present_entries(changes: list[tuple[bytes, bytes | None]]) -> None:
    memory = TablesMemory(1 << 30)
    engine, model = MemoryEngine(memory), dict[bytes, bytes]()
    for key, value in changes:
        if value is None:
            engine.delete(key, engine.get(key))
            model.pop(key, None)
        else:
            model[key] = packed(value)
            engine.put(key, model[key], engine.get(key))
    assert engine.bytes_used == sum(len(key) + len(entry) + ENTRY_BYTES for key, entry in model.items())
    assert memory.bytes_used == engine.bytes_used
    assert {key: engine.get(key) for key in model} == model
    assert len(engine) == len(model)
    assert sum(1 for _ in engine.close()) <= len(model), "a flush of few entries takes as many turns"
    assert (memory.bytes_used, engine.bytes_used) == (0, 0)


@settings(deadline=None)
@given(st.lists(st.tuples(KEYS, st.integers(-1, 9) | st.none())), st.integers(0, 9), st.integers(0, 5))
def test_the_keys_that_expire_are_known_by_their_time(
    changes: list[tuple[bytes, int | None]], until_ms: int, count: int
) -> None:
    engine, model = MemoryEngine(TablesMemory(1 << 30)), dict[bytes, int]()
    for key, expires_ms in changes:
        model.pop(key, None)
        if expires_ms is None:
            engine.delete(key, engine.get(key))
        else:
            engine.put(key, packed(b"", expires_ms), engine.get(key))
            if expires_ms != NEVER:
                model[key] = expires_ms
    due = sorted((expires_ms, key) for key, expires_ms in model.items())
    assert engine.next_expiry_ms == (due[0][0] if due else None)
    assert engine.expiring(until_ms, count) == [key for expires_ms, key in due if expires_ms <= until_ms][:count]
