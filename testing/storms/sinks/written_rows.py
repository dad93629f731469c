"""The rows that the queries of a sink write, and the judge of a target topic. Pure.

1. The rows of a batch follow from the query and the batch id alone: a driver that runs the batch again has the same.
2. A target partition has the rows of each query in the order of batches, tasks and rows, each once, and no other rows.
   The rows of a batch are not mixed with others.
3. A batch whose commit returned is in the target. Of the others only the next one may be, and then it is whole.
4. At any instant, a reader of a partition sees the first of these rows and no others.
5. If no query takes the writer over, only one query has rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from random import Random

PARTITIONS = 2
TASKS_MAX = 3
ROWS_MAX = 30


def rows_of_tasks(query: str, batch: int) -> list[list[str]]:
    """The rows of each task of a batch; a row goes to the partition `partition_of` names."""
    stream = Random(f"{query}/{batch}")
    return [
        [f"{query}/{batch}/{task}/{row}" for row in range(stream.choice((0, 1, ROWS_MAX)))]
        for task in range(stream.randint(1, TASKS_MAX))
    ]


def partition_of(row: str) -> int:
    """The target partition of a row."""
    return int(row.rpartition("/")[2]) % PARTITIONS


def findings(partitions: Sequence[Sequence[str]], finished: Mapping[str, int], *, takes_over: bool) -> list[str]:
    """The violations of the rules in a target at rest.

    Args:
        partitions: the values in each target partition, in the order of the log.
        finished: the last batch of each query whose commit returned; -1 for none.
        takes_over: whether queries take the writer from each other.
    """
    found = []
    for query, last in finished.items():
        present = [_rows(values, query) for values in partitions]
        known = [_expected(query, last), _expected(query, last + 1)]
        if present not in known:
            found.append(f"query {query}: {_difference(present, known[0])}")
    for partition, values in enumerate(partitions):
        owners = [owner for owner, _ in groupby(row.split("/")[:2] for row in values)]
        if len(owners) != len({tuple(owner) for owner in owners}):
            found.append(f"partition {partition}: the rows of a batch are mixed with others")
    owning = sorted({row.partition("/")[0] for values in partitions for row in values})
    if unknown := [owner for owner in owning if owner not in finished]:
        found.append(f"there are rows of {unknown}, which are no queries")
    if len(owning) > 1 and not takes_over:
        found.append(f"the queries {owning} have rows, and none takes the writer over")
    return found


def findings_meanwhile(partitions: Sequence[Sequence[str]], queries: Iterable[str]) -> list[str]:
    """The violations of rule 4 in what a reader sees while rows are written."""
    found = []
    for query in queries:
        for partition, values in enumerate(partitions):
            present = _rows(values, query)
            last = max((int(row.split("/")[1]) for row in present), default=-1)
            wanted = _expected(query, last)[partition][: len(present)]
            if present != wanted:
                found.append(f"query {query}, meanwhile: {_difference([present], [wanted])}")
    return found


def _rows(values: Sequence[str], query: str) -> list[str]:
    return [row for row in values if row.startswith(f"{query}/")]


def _expected(query: str, last: int) -> list[list[str]]:
    """The rows of all batches up to the last one, by partition."""
    rows = [row for batch in range(last + 1) for task in rows_of_tasks(query, batch) for row in task]
    return [[row for row in rows if partition_of(row) == partition] for partition in range(PARTITIONS)]


def _difference(present: list[list[str]], expected: list[list[str]]) -> str:
    for partition, (here, wanted) in enumerate(zip(present, expected, strict=True)):
        for place, row in enumerate(here):
            if place >= len(wanted) or row != wanted[place]:
                there = wanted[place] if place < len(wanted) else "nothing"
                return f"row {place} of partition {partition} is {row}, expected {there}"
        if len(here) < len(wanted):
            return f"partition {partition} ends before {wanted[len(here)]}"
    return "the partitions end at different batches"
