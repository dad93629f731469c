"""Counts the events that a sweep reached: faults injected, events logged by nodes, branches named by a scenario.

Nodes have no code for this: their recovery branches are counted by the events that they log, as `log/<event>`. A sweep
(many seeds of a scenario) that leaves a counter at zero has tested less than it claims. This line makes it fail:

    coverage.assert_all_counted(["fault/kill", "fault/power loss", "log/ledger recovered"])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from gnomon.testing.simulation.trace import Trace


class Coverage:
    """Counters by name; those that were never counted are 0."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.largest: dict[str, float] = {}
        """The largest measurement by its name."""

    def measure(self, name: str, value: float) -> None:
        """Takes a measurement, such as seconds that an answer took."""
        self.largest[name] = max(value, self.largest.get(name, value))

    def count(self, name: str, times: int = 1) -> None:
        """Counts an event."""
        self.counts[name] += times

    def add(self, other: Coverage) -> None:
        """Adds the counts and measurements of another simulation."""
        self.counts.update(other.counts)
        for name, value in other.largest.items():
            self.measure(name, value)

    def assert_all_counted(self, names: Iterable[str], at_least: int = 1) -> None:
        """Fails with the names that were reached less often than `at_least` times.

        Args:
            names: the counters that must have been reached, such as `fault/kill` or `log/<event>`.
            at_least: the lowest number that is enough for each.

        Raises:
            AssertionError: some were not; its text has their values.
        """
        low = [f"{name}: {self.counts[name]}" for name in names if self.counts[name] < at_least]
        assert not low, (
            f"reached less than {at_least} times: {'; '.join(low)}. "
            "Run more seeds, raise the rates, or find out why the branch is never taken"
        )


class SimulatedLogger:
    """A `runtime.logs.Logger` whose events go into the trace and the counters; fields are asides of the trace.

    Fields may contain values that differ between two runs of one seed, such as a traceback.

    Args:
        node: the name of the process, for the lines of the trace.
        trace: gets a line for each event.
        coverage: counts each event as `log/<event>`.
        fields: fields of all events, see `bind`.
    """

    def __init__(
        self, node: str, trace: Trace, coverage: Coverage, fields: Mapping[str, object] = MappingProxyType({})
    ) -> None:
        self._node = node
        self._trace = trace
        self._coverage = coverage
        self._fields = fields

    def bind(self, **fields: object) -> SimulatedLogger:
        """See `Logger.bind`."""
        return SimulatedLogger(self._node, self._trace, self._coverage, {**self._fields, **fields})

    def debug(self, event: str, **fields: object) -> None:
        """See `Logger.debug`."""
        self._add("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """See `Logger.info`."""
        self._add("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """See `Logger.warning`."""
        self._add("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """See `Logger.error`."""
        self._add("error", event, fields)

    exception = error

    def _add(self, level: str, event: str, fields: Mapping[str, object]) -> None:
        aside = "".join(f"  {name}={value}" for name, value in (*self._fields.items(), *fields.items()))
        self._trace.add(f"{self._node}  {level}: {event}", aside)
        self._coverage.count(f"log/{event}")
