"""Writes the page of a fan-out's figures from the measurements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.fanout.goals import (
    STORAGE_CASE,
    FanoutVerdict,
    consumers_case,
    delay_case,
    fan_case,
    subscriptions_case,
    verdicts,
)
from bench.fanout.record import RunRecord
from bench.fanout.scale import FanoutScale
from bench.reports.report import number

FILE = "fanout.md"
NOTES = "fanout-notes.md"
"""Written by hand, next to the figures: the reasons for missed goals."""
INTRODUCTION = """# Fan-out, measured

    make bench-fanout                                  # everything, about an hour
    make bench-fanout ONLY="delay produce" ROUNDS=1    # some of it
    make bench-fanout INTO=docs                        # also writes this page and its pictures again

`python -m bench.fanout` makes this page from [fanout.json](fanout.json), which has every run. Figures are
medians, followed by minimum and maximum if there are several runs. Everything is on one machine: the
metadata, three bookies (E = 3, Qw = 3, Qa = 2, synced), a broker for the source and one for each shadow, the
clients, the producers. They share its processors, so latencies contain the wait for a processor. With more brokers than
processors, spreading readers over brokers cannot be faster here. So this page shows the costs of shadows, and not
their purpose, which is the use of more machines.
"""
SUBSCRIPTIONS = """## Durable subscriptions

On one topic, at one message of 1 KB a second, with gnomon's own client, a thousand subscriptions on a
connection, all in one process. *Connected*: time from the first connection until the last subscription is stored
and attached. *Delivery*: time from the producer's send to the listener, over all messages after
subscribing. *Broker CPU*: of all brokers together, minus their use without subscriptions
(`whole_cpu_us` in fanout.json is without this deduction), for a delivery with its acknowledgement and the storing
of the position. *Memory*: growth of the brokers' memory for each subscription. *Longest
produce*: of the messages, and of twenty small ones a second to another partition at the source's broker, from the
first subscription to the end; *before* is the same without subscriptions.
"""
CONSUMERS = """## Kafka consumers

Each has a connection and a group of its own, at one message of 1 KB a second. They are frames on sockets with the
timing of Java's consumer (a Fetch waits 500 ms, heartbeats every 3 s, commits every 5 s), because this machine
cannot run that many real librdkafka or Java consumers, with their threads, beside the brokers. Both cases have the
same number of brokers. CPU is in percent of one processor: of all brokers, of the source's broker, of the load
program.
"""
DELAY = """## From source to shadow

One producer, batches of 1 record at 1,000 messages a second and of 50 beyond, of 100 bytes. One process receives
every batch by a subscription of the source, and by one of a shadow on another broker. *Delay*: time between a
batch's arrivals from source and shadow. *From the producer*: time from its send to either arrival.
"""
PRODUCE = """## Writing beside shadows

Records of 1 KB. *Steady*: 100 batches of 60 records a second. *Full*: the maximum of librdkafka, in
batches of 64 KiB. The shadows are in use, each on a broker of its own, without readers: CPU is that of the
source's broker only.
"""
STORAGE = """## On the bookies

The size of keys and values in all bookies' stores after the same messages of 1 KB, with and without four shadows
that are all read and acknowledged: the cost of a shadow for each message. Positions are in the metadata, so they
add nothing here; *a position* is the size of one on the bookies with
`subscriptions.log_segment_based_subscriptions_store_enabled`.
"""


def write_page(record: RunRecord, folder: Path) -> None:
    """Writes the page of all parts that were measured."""
    scale = FanoutScale()
    notes = folder / NOTES
    sections = [INTRODUCTION, *_goals(record, scale), notes.read_text() if notes.exists() else ""]
    for part, introduction, table in (
        ("subscriptions", SUBSCRIPTIONS, _subscriptions),
        ("consumers", CONSUMERS, _consumers),
        ("delay", DELAY, _delay),
        ("produce", PRODUCE, _produce),
        ("storage", STORAGE, _storage),
    ):
        if record.has(part):
            picture = f"![{part}](fanout-{part}.svg)\n" if part != "storage" else ""
            sections += [introduction, "\n".join(table(record, scale)) + "\n", picture, _measured_at(record, part)]
    (folder / FILE).write_text("\n".join(section for section in sections if section))


def _measured_at(record: RunRecord, part: str) -> str:
    begun, machine, load = record.told(part)
    return f"Measured {begun} UTC on {machine}; load average at the end of a run: up to {load:.1f}.\n"


def _goals(record: RunRecord, scale: FanoutScale) -> Iterator[str]:
    found = [verdict for verdict in verdicts(record, scale) if verdict.measured is not None]
    missed = sum(verdict.word == "missed" for verdict in found)
    yield f"## Goals\n\n{len(found) - missed} reached, {missed} missed.\n"
    yield "\n".join([*_header("goal", "case", "bound", "median", ""), *map(_goal, found)]) + "\n"


def _goal(verdict: FanoutVerdict) -> str:
    assert verdict.measured is not None, "only what was measured has a row"
    word = verdict.word if verdict.word == "reached" else f"**{verdict.word}**"
    bound, measured = f"≤ {verdict.bound:g} {verdict.unit}", f"{number(verdict.measured)} {verdict.unit}"
    return _row(verdict.what, verdict.case, bound, measured, word)


def _header(*cells: str) -> list[str]:
    return [_row(*cells), "|" + "---|" * len(cells)]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(record: RunRecord, part: str, case: str, figure: str) -> str:
    spread = record.spread(part, case, figure)
    if spread is None:
        return "–"
    median = number(spread.median)
    return (
        median if spread.minimum == spread.maximum else f"{median} ({number(spread.minimum)}–{number(spread.maximum)})"
    )


def _table(record: RunRecord, part: str, cases: list[str], columns: dict[str, str]) -> Iterator[str]:
    yield from _header("", *columns.values(), "runs")
    for case in cases:
        if runs := record.runs(part, case):
            yield _row(case, *(_cell(record, part, case, figure) for figure in columns), str(runs))


def _subscriptions(record: RunRecord, scale: FanoutScale) -> Iterator[str]:
    cases = [subscriptions_case(count, shadows) for count in scale.subscriptions for shadows in scale.spreads]
    columns = {
        "connected_s": "connected, s",
        "mean_ms": "delivery mean, ms",
        "p50_ms": "p50",
        "p99_ms": "p99",
        "first_message_ms": "last of the first message",
        "broker_cpu_us": "broker CPU, µs",
        "storage_cpu_us": "metadata's and bookies'",
        "client_cpu_us": "client's",
        "subscription_bytes": "memory, B",
        "produce_wait_ms": "longest produce, ms",
        "quiet_wait_ms": "before",
    }
    yield from _table(record, "subscriptions", cases, columns)


def _consumers(record: RunRecord, scale: FanoutScale) -> Iterator[str]:
    cases = [consumers_case(scale.consumers, shadows) for shadows in (0, scale.consumer_shadows)]
    columns = {
        "joined_s": "all joined, s",
        "mean_ms": "delivery mean, ms",
        "p50_ms": "p50",
        "p99_ms": "p99",
        "broker_cpu_percent": "brokers, %",
        "source_cpu_percent": "source's broker, %",
        "client_cpu_percent": "load program, %",
    }
    yield from _table(record, "consumers", cases, columns)


def _delay(record: RunRecord, scale: FanoutScale) -> Iterator[str]:
    columns = {
        "delay_p50_ms": "delay p50, ms",
        "delay_p99_ms": "p99",
        "delay_max_ms": "longest",
        "source_p50_ms": "from the producer to the source's reader p50, ms",
        "source_p99_ms": "p99",
        "shadow_p50_ms": "to the shadow's p50, ms",
        "shadow_p99_ms": "p99 ",
        "rate": "sent, msg/s",
        "source_cpu_us": "source's broker, µs a message",
        "shadow_cpu_us": "shadow's",
    }
    yield from _table(record, "delay", [delay_case(rate) for rate in scale.rates], columns)


def _produce(record: RunRecord, scale: FanoutScale) -> Iterator[str]:
    columns = {
        "paced_cpu_us": "steady: CPU a message, µs",
        "paced_p50_ms": "answered p50, ms",
        "paced_p99_ms": "p99",
        "rate": "full: msg/s",
        "full_cpu_us": "CPU a message, µs",
    }
    yield from _table(record, "produce", [fan_case(shadows) for shadows in scale.fans], columns)


def _storage(record: RunRecord, scale: FanoutScale) -> Iterator[str]:
    columns = {
        "message_bytes": "a message, all copies, B",
        "shadow_bytes": "a shadow of it, B",
        "position_bytes": "a position, B",
    }
    yield from _table(record, "storage", [STORAGE_CASE], columns)
