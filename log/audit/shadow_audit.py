"""Audits a shadow: its metadata record and the stored cursors of its replicator, against its source.

The entries of a shadow are those of its source, and are audited there.
"""

from __future__ import annotations

from collections.abc import Iterable

from gnomon.bookie.errors import LedgerError
from gnomon.bookie.ledgers.catalog import adopt_ledger
from gnomon.bookie.record import ledger_key
from gnomon.log.audit.audit_place import AuditPlace
from gnomon.log.audit.audited_shadow import cursor_problem, shadow_problems
from gnomon.log.audit.finding import AuditFinding, FindingKind
from gnomon.log.chains import ledgers_prefix, written_partitions
from gnomon.log.segment_record import is_segment_name, parse_segment_name
from gnomon.log.subscription_keys import replicators_prefix, subscriber_of_key
from gnomon.log.topic import TOPICS_PREFIX, Topic, topic_key
from gnomon.metadata.client import KeyValue


async def shadow_findings(place: AuditPlace, shadow: Topic) -> list[AuditFinding]:
    """The rules that a shadow breaks in two looks, one after the other.

    Raises:
        MetadataError: the metadata does not answer.
    """
    first = await _problems_of(place, shadow)
    again = await _problems_of(place, shadow) if first else []
    return [
        AuditFinding(FindingKind.SHADOW, f"topic {shadow.name!r}: {text}", shadow.name)
        for text in first
        if text in again
    ]


async def _problems_of(place: AuditPlace, shadow: Topic) -> list[str]:
    assert shadow.source is not None, f"topic {shadow.name!r} is no shadow"
    items = (await place.metadata.range(TOPICS_PREFIX)).items
    source_key, own_key = topic_key(shadow.source.name), topic_key(shadow.name)
    named = {item.key: item for item in items}
    if own_key not in named or Topic.decode(named[own_key]).id != shadow.id:
        return []  # it was deleted meanwhile
    source = Topic.decode(named[source_key]) if source_key in named else None
    others: list[Topic] = []
    await place.blocking(_take_shadows, others, items)
    problems = list(shadow_problems(shadow, source, others, await written_partitions(place.metadata, shadow.id)))
    return problems or await _cursor_problems(place, shadow)


def _take_shadows(into: list[Topic], items: Iterable[KeyValue]) -> None:
    into += [topic for topic in map(Topic.decode, items) if topic.source is not None]


async def _cursor_problems(place: AuditPlace, shadow: Topic) -> list[str]:
    """The contradictions of the shadow's cursors, which are read before the ends of the source."""
    problems = []
    for item in (await place.metadata.range(replicators_prefix(shadow.id))).items:
        partition = subscriber_of_key(item.key)
        try:
            problem = await _cursor_problem(place, shadow, int(partition), item)
        except ValueError as error:
            problem = f"its cursor cannot be read: {error}"
        if problem is not None:
            problems.append(f"partition {partition}: {problem}")
    return problems


async def _cursor_problem(place: AuditPlace, shadow: Topic, partition: int, item: KeyValue) -> str | None:
    assert shadow.source is not None, f"topic {shadow.name!r} is no shadow"
    cursor = place.replicated_to(item.value)
    found = await place.metadata.range(ledger_key(ledgers_prefix(shadow.source.id, partition)))
    segments = [segment for segment in found.items if is_segment_name(segment.key)]
    if not segments:
        return cursor_problem(cursor, (), None)
    ledger = adopt_ledger(place.metadata, place.bookies, segments[-1])
    try:
        stored = ledger.record.last_entry if ledger.record.sealed else await ledger.last_stored()
    except LedgerError:
        stored = None
    return cursor_problem(cursor, [parse_segment_name(segment.key).base_offset for segment in segments], stored)
