"""`gnomon topic`: topics, over the same admin API that any Kafka client uses."""

from __future__ import annotations

from typing import Any

import click
from confluent_kafka import OFFSET_END, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.cli.exit import Failure
from gnomon.cli.kafka.kafka_client import (
    ANSWER_SECONDS,
    EARLIEST,
    LATEST,
    answer,
    check_not_internal,
    connect,
    describe_topic,
    kafka_errors,
    offsets,
    source_of,
    topic_configs,
)
from gnomon.cli.kafka.replication import replication_of
from gnomon.cli.options import PARTITIONS, TOPIC, bootstrap_option, native_option, pairs
from gnomon.cli.output import note, output_option, show_list, show_record

STATS = (
    "shadow",
    "partition",
    "connected",
    "records_per_second",
    "bytes_per_second",
    "backlog_entries",
    "backlog_bytes",
    "backlog_seconds",
    "last_segment",
    "last_entry",
    "refused",
    "resets",
)


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command()
@click.argument("name", type=TOPIC)
@click.option("--partitions", type=PARTITIONS, help="Partition count; the broker's `num.partitions` unless given.")
@click.option("--config", "configs", metavar="NAME=VALUE", multiple=True, help="A topic config; may be repeated.")
@bootstrap_option
def create(name: str, partitions: int | None, configs: tuple[str, ...], bootstrap: str) -> None:
    """Create the topic NAME."""
    check_not_internal(name)
    given = pairs(configs, "--config")
    admin = connect(bootstrap)
    new = NewTopic(name, num_partitions=partitions or -1, replication_factor=-1, config=given)
    answer(admin.create_topics([new], request_timeout=ANSWER_SECONDS)[name], f"create topic {name!r}")
    note(f"created topic {name!r} with {len(describe_topic(admin, name).partitions)} partitions")


@topic.command("create-shadow")
@click.argument("source", type=TOPIC)
@click.argument("shadow", type=TOPIC)
@bootstrap_option
def create_shadow(source: str, shadow: str, bootstrap: str) -> None:
    """Create the topic SHADOW that shows the records of the topic SOURCE, to be read by other consumers.

    Nothing is stored twice. It has the partitions and configs of SOURCE, and is written through SOURCE alone.
    """
    admin = connect(bootstrap)
    new = NewTopic(shadow, num_partitions=-1, replication_factor=-1, config={SHADOW_SOURCE: source})
    what = f"create shadow {shadow!r} of topic {source!r}"
    try:
        answer(admin.create_topics([new], request_timeout=ANSWER_SECONDS)[shadow], what)
    except Failure:
        # A broker reports a missing source as a wrong config, so the source is looked up only after that error: a
        # source created just before is known to the creating broker, and perhaps not yet to the broker that is asked.
        describe_topic(admin, source, what)
        raise
    note(f"created shadow {shadow!r} of topic {source!r}")


@topic.command("list")
@bootstrap_option
@output_option
def list_topics(bootstrap: str, output: str) -> None:
    """List all topics."""
    admin = connect(bootstrap)
    with kafka_errors("list topics"):
        names = sorted(admin.list_topics(timeout=ANSWER_SECONDS).topics)
    rows = []
    if names:
        futures = admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_SECONDS)
        for name in names:
            found = answer(futures[name], f"describe topic {name!r}")
            rows.append(
                {
                    "topic": name,
                    "partitions": len(found.partitions),
                    "internal": found.is_internal,
                    "id": topic_id(found),
                }
            )
    show_list(rows, ("topic", "partitions", "internal", "id"), output)


def topic_id(found: Any) -> str:
    """A described topic's id as Kafka writes it: base64 for file names."""
    return str(found.topic_id).replace("+", "-").replace("/", "_")


@topic.command()
@click.argument("name", type=TOPIC)
@bootstrap_option
@output_option
def describe(name: str, bootstrap: str, output: str) -> None:
    """Show the id, the partitions and the configs that are not the default of the topic NAME."""
    admin = connect(bootstrap)
    found = describe_topic(admin, name)
    partitions = [partition.id for partition in found.partitions]
    earliest = offsets(admin, name, partitions, EARLIEST)
    latest = offsets(admin, name, partitions, LATEST)
    record = {
        "topic": name,
        "id": topic_id(found),
        "internal": found.is_internal,
        "partitions": [
            {
                "partition": partition.id,
                "leader": None if partition.leader is None else partition.leader.id,
                "earliest": earliest[partition.id],
                "latest": latest[partition.id],
            }
            for partition in found.partitions
        ],
        "configs": _configs(admin, name),
    }
    show_record(record, output)


@topic.command()
@click.argument("name", type=TOPIC)
@native_option
@output_option
def stats(name: str, native: str, output: str) -> None:
    """Show the replication lag of each shadow of the topic NAME."""
    show_list(replication_of(name, native), STATS, output)


def _configs(admin: AdminClient, name: str) -> list[dict[str, Any]]:
    return [
        {"config": entry.name, "value": entry.value, "source": ConfigSource(entry.source).name.lower()}
        for entry in sorted(topic_configs(admin, name).values(), key=lambda entry: str(entry.name))
        if ConfigSource(entry.source) is not ConfigSource.DEFAULT_CONFIG
    ]


@topic.command()
@click.argument("name", type=TOPIC)
@click.option("--partitions", type=PARTITIONS, help="New partition count; larger than now.")
@click.option("--set", "given", metavar="NAME=VALUE", multiple=True, help="Set a config; may be repeated.")
@click.option("--unset", metavar="NAME", multiple=True, help="Return a config to its default; may be repeated.")
@bootstrap_option
def alter(name: str, partitions: int | None, given: tuple[str, ...], unset: tuple[str, ...], bootstrap: str) -> None:
    """Add partitions to the topic NAME, or change its configs."""
    check_not_internal(name)
    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in pairs(given, "--set").items()
    ]
    changes += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in unset]
    if partitions is None and not changes:
        raise click.UsageError("nothing to alter: give --partitions, --set or --unset")
    admin = connect(bootstrap)
    if changes:
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
        futures = admin.incremental_alter_configs([resource], request_timeout=ANSWER_SECONDS)
        answer(futures[resource], f"change the configs of topic {name!r}")
    if partitions is not None:
        more = admin.create_partitions([NewPartitions(name, partitions)], request_timeout=ANSWER_SECONDS)
        answer(more[name], f"add partitions to topic {name!r}")
    note(f"altered topic {name!r}")


@topic.command()
@click.argument("names", type=TOPIC, nargs=-1, required=True, metavar="NAME...")
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap: str) -> None:
    """Delete topics with all their records."""
    for name in names:
        check_not_internal(name)
    admin = connect(bootstrap)  # must live until it has answered
    futures = admin.delete_topics(list(dict.fromkeys(names)), request_timeout=ANSWER_SECONDS)
    try:
        finish([(f"delete topic {name!r}", f"deleted topic {name!r}", futures[name]) for name in futures])
    except Failure:
        # librdkafka uses a version of the request without a field for the broker's reason.
        for name, shadows in _shadows(admin).items():
            if name in names:
                note(f"topic {name!r} has shadows that show its records: delete {', '.join(shadows)} first")
        raise


@topic.command()
@click.argument("name", type=TOPIC)
@bootstrap_option
def truncate(name: str, bootstrap: str) -> None:
    """Delete all records that the topic NAME has now, read or not; the topic stays.

    Subscriptions, of the topic and of its shadows, continue with the records produced next. A shadow has no records of
    its own: truncate its source.
    """
    check_not_internal(name)
    admin = connect(bootstrap)
    partitions = [partition.id for partition in describe_topic(admin, name).partitions]
    source = source_of(admin, name)
    if source is not None:
        raise Failure(f"topic {name!r} is a shadow of {source!r}: truncate the source")
    ends = [TopicPartition(name, partition, OFFSET_END) for partition in partitions]
    futures = admin.delete_records(ends, request_timeout=ANSWER_SECONDS)
    finish(
        [
            (
                f"truncate partition {at.partition} of topic {name!r}",
                f"truncated partition {at.partition} of topic {name!r}",
                future,
            )
            for at, future in futures.items()
        ]
    )


def _shadows(admin: AdminClient) -> dict[str, list[str]]:
    """The shadows of each topic that has any."""
    with kafka_errors("list topics"):
        names = sorted(admin.list_topics(timeout=ANSWER_SECONDS).topics)
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    found: dict[str, list[str]] = {}
    for resource, future in admin.describe_configs(resources, request_timeout=ANSWER_SECONDS).items():
        source = answer(future, f"read the configs of topic {resource.name!r}").get(SHADOW_SOURCE)
        if source is not None:
            found.setdefault(source.value, []).append(resource.name)
    return found


def finish(attempts: list[tuple[str, str, Any]]) -> None:
    """Waits for several attempts (what, text on success, future); each gets its line.

    Raises:
        Failure: the last that failed; the lines of the others are written.
    """
    failed: Failure | None = None
    for what, done, future in attempts:
        try:
            answer(future, what)
        except Failure as failure:
            if failed is not None:
                note(f"Error: {failed}")
            failed = failure
        else:
            note(done)
    if failed is not None:
        raise failed
