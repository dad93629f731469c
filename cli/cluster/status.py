"""`gnomon cluster status`: the processes of a cluster and the state of its ledgers, in one view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon.bookie.ledgers.ledgers import Ledgers
from gnomon.bookie.missing_report import MISSING
from gnomon.bookie.repair.auditor import ELECTION
from gnomon.cli.bookie_members import add_usage, lacking_copies, members
from gnomon.cli.cluster.live_brokers import live_brokers
from gnomon.cli.cluster_metadata import in_cluster
from gnomon.cli.given_settings import cluster_options, cluster_settings
from gnomon.cli.output import output_option, show_record
from gnomon.metadata.cluster_id import CLUSTER_KEY

LEDGERS_SHOWN_MAX = 20


@click.command()
@cluster_options
@output_option
def status(metadata_address: str | None, config_file: Path | None, output: str) -> None:
    """Show brokers, bookies, metadata, auditor and the ledgers that lack copies."""
    settings = cluster_settings(metadata_address, config_file)

    async def work(ledgers: Ledgers) -> dict[str, Any]:
        return {"metadata": settings.cluster.metadata, **await _found(ledgers)}

    show_record(in_cluster(settings, work), output)


async def _found(ledgers: Ledgers) -> dict[str, Any]:
    metadata = ledgers.metadata
    cluster, auditor = await metadata.get(CLUSTER_KEY), await metadata.get(ELECTION)
    brokers = await live_brokers(metadata)
    bookies = await members(ledgers)
    records = await ledgers.list()
    await add_usage(ledgers, bookies, records)
    reported = await metadata.range(MISSING)
    lacking = lacking_copies(bookies, records, [item.value.decode() for item in reported.items])
    return {
        "revision": reported.revision,
        "cluster": None if cluster is None else cluster.value.decode(),
        "auditor": None if auditor is None else auditor.value.decode(),
        "ledgers": len(records),
        "under_replicated": len(lacking),
        "brokers": brokers,
        "bookies": bookies,
        "under_replicated_ledgers": [{"ledger": name} for name in lacking[:LEDGERS_SHOWN_MAX]],
    }
