"""`gnomon subscription`: durable subscriptions, over the native ports of the brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from gnomon.cli.kafka.known_names import topic_names
from gnomon.cli.kafka.position import target_options, the_target
from gnomon.cli.names.suggestion import CommandGroup
from gnomon.cli.native.known_subscriptions import subscription_names
from gnomon.cli.native.native_client import with_native_client
from gnomon.cli.options import TEXT, TOPIC, native_option
from gnomon.cli.output import note, output_option, show_list, show_record
from gnomon.client.client import NativeClient
from gnomon.client.described_subscription import DescribedSubscription
from gnomon.client.errors import NoSuchTopic
from gnomon.client.subscriptions import Subscriptions

LISTED = ("topic", "subscription", "type", "consumers", "backlog_records", "partitions")
MOVED = ("topic", "partition", "before", "after")


@click.group(cls=CommandGroup)
def subscription() -> None:
    """List, describe, move and delete durable subscriptions."""


@subscription.command("list")
@click.argument("topics", type=TOPIC, shell_complete=topic_names, nargs=-1, metavar="[TOPIC...]")
@native_option
@output_option
def list_subscriptions(topics: tuple[str, ...], native: str, output: str) -> None:
    """List the subscriptions of the topics, or of all topics."""

    async def work(client: NativeClient) -> list[dict[str, Any]]:
        rows = []
        for topic in topics or await client.subscriptions.topics():
            try:
                found = await client.subscriptions.list(topic)
            except NoSuchTopic:
                if topics:
                    raise
                continue  # it was deleted meanwhile
            rows += [{**asdict(each), "subscription": each.name} for each in found]
        return rows

    show_list(with_native_client(native, work), LISTED, output)


@subscription.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.argument("name", type=TEXT, shell_complete=subscription_names, metavar="SUBSCRIPTION")
@native_option
@output_option
def describe(topic: str, name: str, native: str, output: str) -> None:
    """Show the positions, the backlog and the consumers of SUBSCRIPTION, and the records that it holds back."""

    async def work(client: NativeClient) -> DescribedSubscription:
        return await client.subscriptions.describe(topic, name)

    show_record(_record(with_native_client(native, work)), output)


def _record(found: DescribedSubscription) -> dict[str, Any]:
    return {
        "topic": found.topic,
        "subscription": found.name,
        "type": found.type,
        "backlog_records": found.backlog_records,
        "backlog_bytes": found.backlog_bytes,
        "backlog_seconds": found.backlog_seconds,
        "held_records": found.held_records,
        "held_bytes": found.held_bytes,
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.broker,
                "offset": each.offset,
                "end": each.end,
                "acknowledged_ahead": each.acknowledged_ahead,
                "backlog_records": each.backlog_records,
                "backlog_bytes": each.backlog_bytes,
                "backlog_seconds": each.backlog_seconds,
                "held_records": each.held_records,
                "held_bytes": each.held_bytes,
            }
            for each in found.partitions
        ],
        "consumers": [asdict(each) for each in found.consumers],
    }


@subscription.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.argument("name", type=TEXT, shell_complete=subscription_names, metavar="SUBSCRIPTION")
@target_options
@native_option
@output_option
def seek(topic: str, name: str, only: tuple[int, ...], native: str, output: str, **targets: Any) -> None:
    """Move SUBSCRIPTION, for all of its consumers; acknowledgements after the new position are forgotten."""
    target, value = the_target(targets)
    partitions = only or None

    async def work(client: NativeClient) -> list[dict[str, Any]]:
        before = {each.partition: each.offset for each in (await client.subscriptions.describe(topic, name)).partitions}
        after = await _seek(client.subscriptions, topic, name, target, value, partitions)
        return [
            {"topic": topic, "partition": partition, "before": before.get(partition), "after": offset}
            for partition, offset in after.items()
        ]

    show_list(with_native_client(native, work), MOVED, output)


async def _seek(
    subscriptions: Subscriptions, topic: str, name: str, target: str, value: Any, partitions: Sequence[int] | None
) -> dict[int, int]:
    if target == "to_offset":
        return await subscriptions.seek_to_offset(topic, name, value, partitions=partitions)
    if target == "to_datetime":
        return await subscriptions.seek_to_time(topic, name, value, partitions=partitions)
    return await subscriptions.seek(
        topic, name, "earliest" if target == "to_earliest" else "latest", partitions=partitions
    )


@subscription.command()
@click.argument("topic", type=TOPIC, shell_complete=topic_names)
@click.argument(
    "names", type=TEXT, shell_complete=subscription_names, nargs=-1, required=True, metavar="SUBSCRIPTION..."
)
@native_option
def delete(topic: str, names: tuple[str, ...], native: str) -> None:
    """Delete subscriptions of TOPIC that have no consumers; the records that they hold back are free."""

    async def work(client: NativeClient) -> None:
        for name in dict.fromkeys(names):
            await client.subscriptions.delete(topic, name)
            note(f"deleted subscription {name!r} of topic {topic!r}")

    with_native_client(native, work)
