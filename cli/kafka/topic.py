"""`gnomon topic`: topics, over the same admin API that any Kafka client uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import click
from confluent_kafka import OFFSET_END, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from gnomon.broker.configs.topic_configs import VIEW, is_table
from gnomon.broker.topics.cast import SHADOW_SOURCE
from gnomon.cli.exit import Exit, Failure
from gnomon.cli.kafka.attempts import Attempt, Results, finish
from gnomon.cli.kafka.config_names import config_suggestions
from gnomon.cli.kafka.kafka_client import (
    ANSWER_SECONDS,
    EARLIEST,
    LATEST,
    answer,
    check_not_internal,
    connect,
    delete_before,
    describe_topic,
    offsets,
    offsets_at,
    partitions_of,
    source_of,
    topic_configs,
)
from gnomon.cli.kafka.known_names import config_names, topic_names
from gnomon.cli.kafka.position import Position, edge_names, position_given
from gnomon.cli.kafka.shadow_sources import all_topics, shadow_sources, shadows_of
from gnomon.cli.kafka.topic_description import topic_id, topic_record
from gnomon.cli.kafka.topic_stats import read_holds_of, replication_of
from gnomon.cli.names.suggestion import CommandGroup
from gnomon.cli.options import PARTITION, PARTITIONS, TOPIC, bootstrap_option, native_option, pairs
from gnomon.cli.output import note, output_option, show_list, show_record, show_records
from gnomon.wire.kafka.errors import ErrorCode

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


@click.group(cls=CommandGroup)
def topic() -> None:
    """Create, list, describe, alter and delete topics, and delete their records."""


@topic.command()
@click.argument("names", type=TOPIC, nargs=-1, required=True, metavar="NAME...")
@click.option("--partitions", type=PARTITIONS, help="Partition count; the broker's `num.partitions` unless given.")
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 100),
    help="Copies of each record, at most one on each bookie; the broker's default unless given.",
)
@click.option(
    "--config",
    "configs",
    metavar="NAME=VALUE",
    multiple=True,
    shell_complete=config_names,
    help="A topic config; may be repeated.",
)
@click.option("--if-not-exists", is_flag=True, help="A topic that exists already is left as it is, and no error.")
@bootstrap_option
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
) -> None:
    """Create the topics NAME, each with these partitions and configs."""
    for name in names:
        check_not_internal(name)
    given = pairs(configs, "--config")
    admin = connect(bootstrap)
    new = [
        NewTopic(name, num_partitions=partitions or -1, replication_factor=replication_factor or -1, config=given)
        for name in dict.fromkeys(names)
    ]
    futures = admin.create_topics(new, request_timeout=ANSWER_SECONDS)
    exists = ErrorCode.TOPIC_ALREADY_EXISTS
    with config_suggestions(given):
        finish(
            Attempt(
                f"create topic {name!r}",
                futures[name],
                partial(_created, admin, name),
                (exists, f"topic {name!r} exists already: it is left as it is") if if_not_exists else None,
            )
            for name in futures
        )


def _created(admin: AdminClient, name: str) -> str:
    return f"created topic {name!r} with {len(describe_topic(admin, name).partitions)} partitions"


@topic.command("create-shadow")
@click.argument("source", type=TOPIC, shell_complete=topic_names)
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
    """List all topics; of a shadow also its source."""
    admin = connect(bootstrap)
    names, rows = all_topics(admin), []
    sources = shadow_sources(admin, names)
    if names:
        futures = admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_SECONDS)
        for name in names:
            found = answer(futures[name], f"describe topic {name!r}")
            rows.append(
                {
                    "topic": name,
                    "partitions": len(found.partitions),
                    "internal": found.is_internal,
                    "source": sources.get(name),
                    "id": topic_id(found),
                }
            )
    show_list(rows, ("topic", "partitions", "internal", "source", "id"), output)


@topic.command()
@click.argument("names", type=TOPIC, shell_complete=topic_names, nargs=-1, required=True, metavar="NAME...")
@click.option("--all-configs", is_flag=True, help="Show the configs with their default value, too.")
@bootstrap_option
@output_option
def describe(names: tuple[str, ...], all_configs: bool, bootstrap: str, output: str) -> None:
    """Show id, partitions, sizes and configs of the topics NAME; of the configs those that are not the default."""
    admin = connect(bootstrap)
    results, records = Results(), []
    sources = shadow_sources(admin, all_topics(admin))
    for name in dict.fromkeys(names):
        with results:
            records.append(topic_record(admin, name, sources, all_configs=all_configs))
    if len(names) > 1:
        show_records(records, output)
    elif records:
        show_record(records[0], output)
    results.check()


@topic.command()
@click.argument("name", type=TOPIC, shell_complete=topic_names)
@native_option
@output_option
def stats(name: str, native: str, output: str) -> None:
    """Show the replication lag of each shadow of the topic NAME, and the holds of its readers by partition."""
    shadows = [{column: row[column] for column in STATS} for row in replication_of(name, native)]
    show_record({"topic": name, "shadows": shadows, "holds": read_holds_of(name, native)}, output)


@topic.command()
@click.argument("name", type=TOPIC, shell_complete=topic_names)
@click.option("--partitions", type=PARTITIONS, help="New partition count; larger than now.")
@click.option(
    "--set",
    "given",
    metavar="NAME=VALUE",
    multiple=True,
    shell_complete=config_names,
    help="Set a config; may be repeated.",
)
@click.option(
    "--unset",
    metavar="NAME",
    multiple=True,
    shell_complete=config_names,
    help="Return a config to its default; may be repeated.",
)
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
        with config_suggestions([str(change.name) for change in changes]):
            answer(futures[resource], f"change the configs of topic {name!r}")
    if partitions is not None:
        more = admin.create_partitions([NewPartitions(name, partitions)], request_timeout=ANSWER_SECONDS)
        answer(more[name], f"add partitions to topic {name!r}")
    note(f"altered topic {name!r}")


@topic.command()
@click.argument("names", type=TOPIC, shell_complete=topic_names, nargs=-1, required=True, metavar="NAME...")
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is no error.")
@bootstrap_option
def delete(names: tuple[str, ...], if_exists: bool, bootstrap: str) -> None:
    """Delete topics with all their records."""
    for name in names:
        check_not_internal(name)
    admin = connect(bootstrap)  # must live until it has answered
    futures = admin.delete_topics(list(dict.fromkeys(names)), request_timeout=ANSWER_SECONDS)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        finish(
            Attempt(
                f"delete topic {name!r}",
                futures[name],
                f"deleted topic {name!r}",
                (missing, f"there is no topic {name!r}") if if_exists else None,
            )
            for name in futures
        )
    except Failure:
        # librdkafka uses a version of the request without a field for the broker's reason.
        sources = shadow_sources(admin, all_topics(admin))
        for name in names:
            if shadows := shadows_of(sources, name):
                note(f"topic {name!r} has shadows that show its records: delete {', '.join(shadows)} first")
        raise


@topic.command()
@click.argument("name", type=TOPIC, shell_complete=topic_names)
@bootstrap_option
def truncate(name: str, bootstrap: str) -> None:
    """Delete all records that the topic NAME has now, read or not; the topic stays.

    Subscriptions, of the topic and of its shadows, continue with the records produced next. A shadow has no records of
    its own: truncate its source.
    """
    check_not_internal(name)
    admin = connect(bootstrap)
    partitions = partitions_of(admin, name, (), ())
    _check_no_shadow(admin, name, "truncate")
    futures = delete_before(admin, [TopicPartition(name, partition, OFFSET_END) for partition in partitions])
    with _advising_a_snapshot(admin, name):
        finish(
            Attempt(
                f"truncate partition {at.partition} of topic {name!r}",
                future,
                f"truncated partition {at.partition} of topic {name!r}",
            )
            for at, future in futures.items()
        )


@contextmanager
def _advising_a_snapshot(admin: AdminClient, name: str) -> Iterator[None]:
    """Says what keeps the records of a table, since Kafka's answer has no field for the broker's reason."""
    try:
        yield
    except Failure as refused:
        if "Policy violation" in str(refused) and is_table({VIEW: topic_configs(admin, name)[VIEW].value}):
            note(
                f"topic {name!r} is a table, of which no record after the newest snapshot is deleted: take one with"
                f" `gnomon kv snapshot {name}`"
            )
        raise


def _check_no_shadow(admin: AdminClient, name: str, advice: str) -> None:
    """Raises Failure for a shadow, whose records are its source's."""
    source = source_of(admin, name)
    if source is not None:
        raise Failure(f"topic {name!r} is a shadow of {source!r}: {advice} the source")


@topic.command("delete-records")
@click.argument("name", type=TOPIC, shell_complete=topic_names)
@click.option("--partition", "only", type=PARTITION, multiple=True, help="Only this partition; may be repeated.")
@click.option(
    "--before",
    callback=position_given,
    shell_complete=edge_names,
    metavar="POSITION",
    required=True,
    help="Delete the records before this position; `latest` for all.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@bootstrap_option
@output_option
def delete_records(
    name: str, only: tuple[int, ...], before: Position, dry_run: bool, bootstrap: str, output: str
) -> None:
    """Delete the records of the topic NAME before a position, read or not: its partitions begin there.

    A POSITION is an offset of one partition, `latest` (or `end`), or a time, as for `gnomon consume`. A partition that
    begins at the position or after it stays as it is.
    """
    check_not_internal(name)
    admin = connect(bootstrap)
    partitions = partitions_of(admin, name, only, (before,))
    _check_no_shadow(admin, name, "delete the records of")
    first, ends = offsets(admin, name, partitions, EARLIEST), offsets(admin, name, partitions, LATEST)
    after = offsets_at(admin, name, partitions, before)
    results, rows = Results(), []
    for partition in partitions:
        if after[partition] > ends[partition]:
            raise Failure(
                f"partition {partition} of topic {name!r} ends at offset {ends[partition]}: give no later one",
                Exit.CONFLICT,
            )
    chosen = [TopicPartition(name, partition, after[partition]) for partition in partitions]
    futures = {} if dry_run else delete_before(admin, chosen)
    for at in chosen:
        with results:
            start = max(first[at.partition], at.offset)
            if at in futures:
                what = f"delete records of partition {at.partition} of topic {name!r}"
                start = answer(futures[at], what).low_watermark
            rows.append({"topic": name, "partition": at.partition, "before": first[at.partition], "after": start})
    show_list(rows, ("topic", "partition", "before", "after"), output)
    if dry_run:
        note("nothing was deleted: leave out --dry-run to do it")
    with _advising_a_snapshot(admin, name):
        results.check()
