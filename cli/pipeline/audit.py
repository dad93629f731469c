"""`gnomon pipeline audit`: checks every stored copy of topics, and the records of the metadata; changes nothing."""

from __future__ import annotations

from typing import Any

import click
import trio

from gnomon.broker.subscriptions.positions.record import SubscriberRecord
from gnomon.cli.exit import Exit, Failure
from gnomon.cli.ledger.ledger_place import Found, LedgerPlace, place_options
from gnomon.cli.options import TOPIC
from gnomon.cli.output import output_option, show_record
from gnomon.log.audit.audit_place import AuditPlace
from gnomon.log.audit.partition_audit import AuditedPartition
from gnomon.log.audit.topics_audit import AuditReport, TopicMissing, audit_topics
from gnomon.log.dlsn import Dlsn


@click.command()
@click.argument("topics", nargs=-1, required=True, type=TOPIC, metavar="TOPIC...")
@place_options
@output_option
def audit(topics: tuple[str, ...], place: LedgerPlace, output: str) -> None:
    """Check what is stored for each TOPIC: every copy of every confirmed entry, and the log that the entries make.

    They are those of a cluster (--metadata), or of a data directory (--data-dir), which must not be in use. Changes
    nothing: no writer is fenced, and no copy is repaired. Ends with 1 if there are findings.
    """
    names = list(dict.fromkeys(topics))

    async def work(found: Found) -> AuditReport:
        try:
            return await audit_topics(_stores(found, cluster=place.cluster), names)
        except TopicMissing as error:
            raise Failure(f"{error}: `gnomon topic list` shows all topics", Exit.CONFLICT) from None

    report = place.run(work)
    show_record(_shown(report, in_words=output == "table"), output)
    count = len(report.findings) + report.left_out
    if count:
        first = report.findings[0].words if report.findings else "none is listed"
        raise Failure(f"1 finding: {first}" if count == 1 else f"{count} findings, the first: {first}")


def _stores(found: Found, *, cluster: bool) -> AuditPlace:
    metadata, bookies = found.ledgers.metadata, found.ledgers.bookies

    end_on_disk = None if cluster else found.end_of
    return AuditPlace(metadata, bookies, trio.to_thread.run_sync, _replicated_to, end_on_disk)


def _replicated_to(value: bytes) -> Dlsn:
    return SubscriberRecord.decode(value).position.point.dlsn


def _shown(report: AuditReport, *, in_words: bool) -> dict[str, Any]:
    rows = [each.row() for each in report.findings]
    words = ("kind", "topic", "partition", "finding")
    return {
        "entries": sum(each.entries for each in report.partitions),
        "copies": sum(each.copies for each in report.partitions),
        "findings_left_out": report.left_out,
        "partitions": [_partition_row(each) for each in report.partitions],
        "shadows": [each._asdict() for each in report.shadows],
        "findings": [{name: row[name] for name in (words if in_words else row)} for row in rows],
    }


def _partition_row(each: AuditedPartition) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "partition": each.partition,
        "segments": each.segments,
        "entries": each.entries,
        "copies": each.copies,
        "start_offset": each.start_offset,
        "end_offset": each.end_offset,
    }
