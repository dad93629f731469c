"""Audits topics: each partition of a topic with ledgers, and the record of a shadow against its source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gnomon.log.audit.audit_place import AuditPlace
from gnomon.log.audit.finding import AuditFinding, FindingKind
from gnomon.log.audit.partition_audit import AuditedPartition, audit_partition
from gnomon.log.audit.second_look import confirmed_late, confirmed_soon, unreachable_findings
from gnomon.log.audit.shadow_audit import shadow_findings
from gnomon.log.chains import written_partitions
from gnomon.log.topic import Topic, topic_key


class TopicMissing(LookupError):
    """A topic to audit does not exist."""


class AuditedShadow(NamedTuple):
    """A shadow whose record was compared with its source."""

    topic: str
    source: str


class AuditReport(NamedTuple):
    """The result of an audit."""

    partitions: Sequence[AuditedPartition]
    shadows: Sequence[AuditedShadow]
    findings: Sequence[AuditFinding]
    left_out: int
    """Findings that are not listed, because a partition has too many."""


async def audit_topics(place: AuditPlace, names: Sequence[str]) -> AuditReport:
    """Audits topics by name; changes nothing.

    Raises:
        TopicMissing: one of the topics does not exist.
        MetadataError: the metadata does not answer.
    """
    topics = [await _topic(place, name) for name in names]
    partitions: list[AuditedPartition] = []
    findings: list[AuditFinding] = []
    for topic in topics:
        if topic.source is None:
            for number in range(topic.partitions):
                audited = await audit_partition(place, topic.name, topic.id, number)
                partitions.append(audited._replace(findings=()))
                findings += await confirmed_soon(place, audited.findings)
            findings += await _extra_partitions(place, topic)
        else:
            findings += await shadow_findings(place, topic)
    findings = await confirmed_late(place, findings) + await unreachable_findings(place)
    shadows = [AuditedShadow(topic.name, topic.source.name) for topic in topics if topic.source is not None]
    return AuditReport(partitions, shadows, findings, sum(each.left_out for each in partitions))


async def _topic(place: AuditPlace, name: str) -> Topic:
    stored = await place.metadata.get(topic_key(name))
    if stored is None:
        raise TopicMissing(f"there is no topic {name!r}")
    return Topic.decode(stored)


async def _extra_partitions(place: AuditPlace, topic: Topic) -> list[AuditFinding]:
    """The partitions with ledgers that the topic does not have by its record, which is read after the ledgers."""
    written = await written_partitions(place.metadata, topic.id)
    stored = await place.metadata.get(topic_key(topic.name))
    if stored is None or Topic.decode(stored).id != topic.id:
        return []  # it was deleted meanwhile
    count = Topic.decode(stored).partitions
    return [
        AuditFinding(
            FindingKind.RECORD,
            f"partition {number} of topic {topic.name!r} has ledgers, and the topic has {count} partitions",
            topic.name,
            number,
        )
        for number in written
        if number >= count
    ]
