"""`gnomon group`: consumer groups and their committed offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from gnomon.cli.exit import Exit, Failure
from gnomon.cli.kafka.attempts import Attempt, finish
from gnomon.cli.kafka.kafka_client import (
    ANSWER_SECONDS,
    EARLIEST,
    LATEST,
    answer,
    check_partition,
    connect,
    describe_topic,
    from_time,
    offsets,
)
from gnomon.cli.kafka.known_names import group_names, topic_names
from gnomon.cli.kafka.position import TARGETS, target_options, the_target
from gnomon.cli.names.suggestion import CommandGroup
from gnomon.cli.options import SHIFT, TEXT, TOPIC, bootstrap_option
from gnomon.cli.output import note, output_option, show_list, show_record


@click.group(cls=CommandGroup)
def group() -> None:
    """List, describe, reset and delete consumer groups."""


@group.command("list")
@bootstrap_option
@output_option
def list_groups(bootstrap: str, output: str) -> None:
    """List all groups."""
    admin = connect(bootstrap)
    found = answer(admin.list_consumer_groups(request_timeout=ANSWER_SECONDS), "list groups")
    if found.errors:
        raise Failure(f"cannot list all groups: {found.errors[0]}")
    rows = [
        {"group": listed.group_id, "state": listed.state.name.lower(), "type": _type(listed)}
        for listed in sorted(found.valid, key=lambda listed: str(listed.group_id))
    ]
    show_list(rows, ("group", "state", "type"), output)


def _type(listed: Any) -> str:
    return listed.type.name.lower() if hasattr(listed, "type") else "classic"  # confluent-kafka before 2.6 has no types


@group.command()
@click.argument("name", type=TEXT, shell_complete=group_names, metavar="GROUP")
@bootstrap_option
@output_option
def describe(name: str, bootstrap: str, output: str) -> None:
    """Show state, members and committed offsets with their lag of GROUP."""
    admin = connect(bootstrap)
    found = _description(admin, name)
    committed = _committed(admin, name)
    if found.state is ConsumerGroupState.DEAD and not committed:
        raise Failure(f"there is no group {name!r}: `gnomon group list` shows all", Exit.CONFLICT)
    record = {
        "group": name,
        "state": found.state.name.lower(),
        "assignor": found.partition_assignor,
        "coordinator": None if found.coordinator is None else found.coordinator.id,
        "members": [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.host,
                "assigned": [f"{item.topic}-{item.partition}" for item in member.assignment.topic_partitions],
            }
            for member in found.members
        ],
        "offsets": _lags(admin, committed),
    }
    show_record(record, output)


def _description(admin: AdminClient, name: str) -> Any:
    futures = admin.describe_consumer_groups([name], request_timeout=ANSWER_SECONDS)
    return answer(futures[name], f"describe group {name!r}")


def _committed(admin: AdminClient, name: str) -> dict[tuple[str, int], int]:
    """Committed offsets by topic and partition."""
    futures = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)], request_timeout=ANSWER_SECONDS)
    found = answer(futures[name], f"read the offsets of group {name!r}").topic_partitions
    return {(item.topic, item.partition): item.offset for item in found if item.offset >= 0}


def _lags(admin: AdminClient, committed: Mapping[tuple[str, int], int]) -> list[dict[str, Any]]:
    rows = []
    for topic in sorted({topic for topic, _ in committed}):
        partitions = sorted(partition for at, partition in committed if at == topic)
        try:
            ends: dict[int, int] = offsets(admin, topic, partitions, LATEST)
        except Failure as failure:
            if failure.code != Exit.CONFLICT:
                raise
            ends = {}  # the topic is gone, its offsets are not yet
        for partition in partitions:
            offset, end = committed[topic, partition], ends.get(partition)
            lag = None if end is None else max(0, end - offset)
            rows.append({"topic": topic, "partition": partition, "committed": offset, "end": end, "lag": lag})
    return rows


@group.command("reset-offsets")
@click.argument("name", type=TEXT, shell_complete=group_names, metavar="GROUP")
@click.option("--topic", type=TOPIC, shell_complete=topic_names, required=True, help="Topic whose offsets are moved.")
@target_options
@click.option("--shift-by", type=SHIFT, help="By this many records, forward or (negative) backward.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@bootstrap_option
@output_option
def reset_offsets(
    name: str, topic: str, only: tuple[int, ...], dry_run: bool, bootstrap: str, output: str, **targets: Any
) -> None:
    """Move the committed offsets of GROUP; none of its members may be running."""
    target, value = the_target(targets, (*TARGETS, "--shift-by"))
    admin = connect(bootstrap)
    known = [partition.id for partition in describe_topic(admin, topic).partitions]
    partitions = sorted(set(only)) or known
    for partition in partitions:
        check_partition(topic, partition, known)
    members = _description(admin, name).members
    if members and not dry_run:
        raise Failure(f"group {name!r} has {len(members)} members: stop them before its offsets move", Exit.CONFLICT)
    committed = _committed(admin, name)
    before = {partition: offset for (at, partition), offset in committed.items() if at == topic}
    after = _targets(admin, topic, partitions, before, target, value)
    if not dry_run:
        moved = [TopicPartition(topic, partition, offset) for partition, offset in after.items()]
        request = ConsumerGroupTopicPartitions(name, moved)
        futures = admin.alter_consumer_group_offsets([request], request_timeout=ANSWER_SECONDS)
        for item in answer(futures[name], f"move the offsets of group {name!r}").topic_partitions:
            if item.error is not None:
                raise Failure(f"cannot move {topic}-{item.partition} of group {name!r}: {item.error.str()}")
    rows = [
        {"topic": topic, "partition": partition, "before": before.get(partition), "after": after[partition]}
        for partition in partitions
    ]
    show_list(rows, ("topic", "partition", "before", "after"), output)
    if not members and not committed:
        has, is_new = ("has", "would be") if dry_run else ("had", "is")
        note(f"group {name!r} {has} no offsets and no members: it {is_new} new")
    if dry_run:
        note("nothing was changed: leave out --dry-run to do it")


def _targets(
    admin: AdminClient, topic: str, partitions: list[int], before: Mapping[int, int], target: str, value: Any
) -> dict[int, int]:
    """The target offset of each partition, within the offsets that it holds."""
    first = offsets(admin, topic, partitions, EARLIEST)
    end = offsets(admin, topic, partitions, LATEST)
    if target == "to_earliest":
        return first
    if target == "to_latest":
        return end
    if target == "to_datetime":
        found = offsets(admin, topic, partitions, from_time(value))
        return {partition: end[partition] if offset < 0 else offset for partition, offset in found.items()}
    after = {}
    for partition in partitions:
        if target == "shift_by" and partition not in before:
            raise Failure(
                f"nothing is committed for {topic}-{partition}, so it cannot be shifted: use --to-offset", Exit.CONFLICT
            )
        wanted = value if target == "to_offset" else before[partition] + value
        after[partition] = min(max(wanted, first[partition]), end[partition])
        if after[partition] != wanted:
            note(f"{topic}-{partition} holds {first[partition]} to {end[partition]}: {after[partition]}, not {wanted}")
    return after


@group.command()
@click.argument("names", type=TEXT, shell_complete=group_names, nargs=-1, required=True, metavar="GROUP...")
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap: str) -> None:
    """Delete groups with their offsets; none of their members may be running."""
    admin = connect(bootstrap)  # must live until it has answered
    futures = admin.delete_consumer_groups(list(dict.fromkeys(names)), request_timeout=ANSWER_SECONDS)
    finish(Attempt(f"delete group {name!r}", futures[name], f"deleted group {name!r}") for name in futures)
