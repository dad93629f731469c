"""The description of a topic: its partitions with offsets and sizes, and its configs with their sources."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import AdminClient, ConfigSource

from gnomon.cli.kafka.kafka_client import EARLIEST, LATEST, describe_topic, offsets, topic_configs
from gnomon.cli.kafka.partition_sizes import partition_sizes
from gnomon.cli.kafka.shadow_sources import shadows_of
from gnomon.cli.output import note


def topic_id(found: Any) -> str:
    """A described topic's id as Kafka writes it: base64 for file names."""
    return str(found.topic_id).replace("+", "-").replace("/", "_")


def topic_record(admin: AdminClient, name: str, sources: dict[str, str], *, all_configs: bool) -> dict[str, Any]:
    """The record that `gnomon topic describe` shows.

    Args:
        sources: the sources of all shadows.
        all_configs: include the configs that have their default value.

    Raises:
        Failure: there is no such topic, or no answer.
    """
    found = describe_topic(admin, name)
    partitions = [partition.id for partition in found.partitions]
    earliest = offsets(admin, name, partitions, EARLIEST)
    latest = offsets(admin, name, partitions, LATEST)
    sizes = _sizes(name, found.partitions)
    return {
        "topic": name,
        "id": topic_id(found),
        "internal": found.is_internal,
        "source": sources.get(name),
        "shadows": shadows_of(sources, name),
        "records": sum(latest.values()) - sum(earliest.values()),
        "bytes": sum(sizes.values()) if len(sizes) == len(partitions) else None,
        "partitions": [
            {
                "partition": partition.id,
                "leader": None if partition.leader is None else partition.leader.id,
                "earliest": earliest[partition.id],
                "latest": latest[partition.id],
                "records": latest[partition.id] - earliest[partition.id],
                "bytes": sizes.get(partition.id),
            }
            for partition in found.partitions
        ],
        "configs": _configs(admin, name, all_configs=all_configs),
    }


def _sizes(name: str, partitions: list[Any]) -> dict[int, int]:
    """The bytes of each partition; those whose leader does not report them are absent, and a line says so."""
    led: dict[tuple[str, int], list[int]] = {}
    for partition in partitions:
        if partition.leader is not None:
            led.setdefault((partition.leader.host, partition.leader.port), []).append(partition.id)
    sizes: dict[int, int] = {}
    for (host, port), some in led.items():
        try:
            sizes |= partition_sizes(host, port, name, some)
        except OSError as error:
            note(f"no sizes from the broker at {host}:{port}: {error.strerror or error}")
    return sizes


def _configs(admin: AdminClient, name: str, *, all_configs: bool) -> list[dict[str, Any]]:
    return [
        {"config": entry.name, "value": entry.value, "source": ConfigSource(entry.source).name.lower()}
        for entry in sorted(topic_configs(admin, name).values(), key=lambda entry: str(entry.name))
        if all_configs or ConfigSource(entry.source) is not ConfigSource.DEFAULT_CONFIG
    ]
