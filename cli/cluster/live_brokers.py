"""`gnomon broker list`: the brokers that live in a cluster, as they registered themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon.bookie.ledgers.ledgers import Ledgers
from gnomon.broker.placement.brokers import BROKERS, registered_id
from gnomon.broker.placement.leadership import LiveBroker
from gnomon.cli.cluster_metadata import in_cluster
from gnomon.cli.daemon import address
from gnomon.cli.given_settings import cluster_options, cluster_settings
from gnomon.cli.output import output_option, show_list
from gnomon.metadata.client import Metadata

COLUMNS = ("broker", "kafka", "native", "rack", "state")


@click.command("list")
@cluster_options
@output_option
def list_brokers(metadata_address: str | None, config_file: Path | None, output: str) -> None:
    """List the live brokers of a cluster."""

    async def work(ledgers: Ledgers) -> list[dict[str, Any]]:
        return await live_brokers(ledgers.metadata)

    show_list(in_cluster(cluster_settings(metadata_address, config_file), work), COLUMNS, output)


async def live_brokers(metadata: Metadata) -> list[dict[str, Any]]:
    """Every broker whose lease lives, the lowest id first."""
    found = await metadata.range(BROKERS)
    brokers = [LiveBroker.decode(registered_id(item.key), item.value) for item in found.items]
    return [
        {
            "broker": each.id,
            "kafka": ", ".join(
                f"{listener.name}://{address(listener.host, listener.port)}" for listener in each.listeners
            )
            or address(each.host, each.port),
            "native": address(*each.native),
            "rack": each.rack,
            "state": "draining" if each.draining else "alive",
        }
        for each in sorted(brokers, key=lambda each: each.id)
    ]
