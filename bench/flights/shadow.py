"""The second act: a shadow of the flights' topic is read on other brokers while the topic, its source, is written."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.errors import KafkaError

from bench.flights.client import ClientSettings, Stalled
from bench.flights.cluster import FlightCluster
from bench.flights.flight import Flight
from bench.flights.group import consume, end_offsets
from bench.flights.producing import Deliveries, create_topic, send
from bench.flights.screen import Screen
from bench.flights.shadow_report import SHADOW, SOURCE, ReportedTopic, ShadowReport
from bench.flights.stored import Stored
from bench.flights.tally import Census, Tally, differences

PARTITIONS = 4
MEMBERS = 2
ANSWER_SECONDS = 30
POLL_SECONDS = 0.05


def run(
    cluster: FlightCluster, settings: ClientSettings, flights: Sequence[Flight], census: Census, screen: Screen
) -> ShadowReport:
    """Casts the shadow, reads all flights from it while they are written to the source, and inspects the bookie.

    Raises:
        Stalled: no progress.
        NoAnswer: the bookie could not be inspected.
    """
    create_topic(settings, SOURCE, PARTITIONS)
    create_topic(settings, SHADOW, -1, {"gnomon.shadow.source": SOURCE})
    source, shadow = describe(settings, SOURCE), describe(settings, SHADOW)
    screen.say(f"{SHADOW} cast: it shows the records of {SOURCE}")
    deliveries = Deliveries(len(flights))
    written = threading.Event()
    counted = 0

    with (
        screen.stage("consumed", len(flights)) as read,
        screen.stage("produced", len(flights)) as sent,
        ThreadPoolExecutor(1) as pool,
    ):

        def advance(records: int) -> None:
            nonlocal counted
            counted = records
            read(records)

        def ends() -> dict[int, int] | None:
            return end_offsets(settings, SOURCE, PARTITIONS) if written.is_set() else None

        reading = pool.submit(consume, settings, SHADOW, MEMBERS, census, advance, ends)
        began = time.monotonic()
        try:
            send(settings, SOURCE, flights, deliveries, sent, reading)
        finally:
            written.set()
        done, read_meanwhile = time.monotonic(), counted
        consumed = reading.result()
        behind_seconds = time.monotonic() - done
    return ShadowReport(
        len(flights),
        len(census.by_carrier),
        sum(len(flight.document) for flight in flights),
        cluster.start_seconds,
        done - began,
        deliveries.failed,
        deliveries.failure,
        consumed,
        read_meanwhile,
        behind_seconds,
        differences(census, Tally.sum(census, consumed.tallies)),
        source,
        shadow,
        Stored.read(cluster.ask("ledger", "list"), cluster.ask("bookie", "list", "--usage"), source.id, shadow.id),
        refusal(settings),
    )


def describe(settings: ClientSettings, topic: str) -> ReportedTopic:
    """Asks for the topic until each of its partitions has a leader. Raises Stalled."""
    admin = AdminClient(settings.having())
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        found = admin.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_SECONDS)[topic].result()
        leaders = [partition.leader for partition in found.partitions]
        if all(leaders):
            most, least = found.topic_id.get_most_significant_bits(), found.topic_id.get_least_significant_bits()
            digits = uuid.UUID(int=(most % 2**64) << 64 | least % 2**64).hex
            return ReportedTopic(digits, tuple(leader.id for leader in leaders))
        time.sleep(POLL_SECONDS)
    raise Stalled(f"partitions of {topic} have no leader after {ANSWER_SECONDS} s")


def refusal(settings: ClientSettings) -> str:
    """The error for a producer to the shadow. Uses kafka-python: librdkafka does not pass the broker's message on."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    producer = KafkaProducer(bootstrap_servers=settings.bootstrap)
    try:
        producer.send(SHADOW, b"{}").get(ANSWER_SECONDS)
    except KafkaError as error:
        return str(error)
    finally:
        producer.close()
    return ""
