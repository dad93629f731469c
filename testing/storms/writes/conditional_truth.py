"""Judges writers that append to one partition on conditions: every winner is right, every refusal was true. Pure.

    truth = ConditionalTruth()
    attempt = truth.attempt(b"unique value", expected=16, now=1.0)
    attempt.written(17, now=1.2)           # or attempt.refused(current=18, now=1.2), or nothing: unknown
    truth.ended(17, called=2.0, returned=2.1)
    truth.check(final)                     # the whole log, read after the faults have healed

1. An acknowledged write is in the log, once, at its offset. A refused write is not. An unknown one may be.
2. Each record directly follows the one that its writer expected. So of several writers with one expectation one wins.
3. A refusal, and an answer of `end`, names a record that existed before the return. If the answer is of `end`, or the
   writer expected more, it was the end of the log at some instant of the call: no later record was acknowledged before.
   A writer that expected less may be answered by a replaced leader: docs/decisions/0039.
4. A write with a fencing token is not acknowledged if another token was confirmed before its call. A write is refused
   only for a token that somebody tried to set; for no token, only if none was confirmed before its call.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf


@dataclass(slots=True, eq=False)
class WriteAttempt:
    """One write, with the virtual seconds of its call and its return."""

    value: bytes
    expected: int | None
    """The sequence id that the writer expects; None if it expects nothing."""
    token: bytes | None
    called: float
    returned: float = inf
    offset: int | None = None
    """Where it was written, if it was acknowledged."""
    current: int | None = None
    """The end that the refusal names, if it was refused for its expectation."""
    is_refused: bool = False
    refused_for: bytes | None = None
    """The token that the refusal names, if it was refused for its own."""

    def written(self, offset: int, now: float) -> None:
        """The write was acknowledged."""
        self.offset, self.returned = offset, now

    def refused(self, current: int | None, now: float, token: bytes | None = None) -> None:
        """The write was refused: the log ended with `current`, or the partition had another token."""
        self.is_refused, self.current, self.refused_for, self.returned = True, current, token, now


@dataclass(frozen=True, slots=True)
class ConfirmedFence:
    """A fence that was answered."""

    token: bytes
    called: float
    returned: float


@dataclass(slots=True)
class ConditionalTruth:
    """The history of one partition."""

    attempts: dict[bytes, WriteAttempt] = field(default_factory=dict)
    ends: list[tuple[int, float, float]] = field(default_factory=list)
    """Sequence id, call and return of each answer of `end`."""
    fences: list[ConfirmedFence] = field(default_factory=list)
    tokens: dict[bytes, float] = field(default_factory=dict)
    """When the fence with each token was called, whatever became of it."""

    def attempt(self, value: bytes, expected: int | None, now: float, token: bytes | None = None) -> WriteAttempt:
        """A writer calls; values are unique."""
        assert value not in self.attempts, f"two writes of {value!r}"
        attempt = self.attempts[value] = WriteAttempt(value, expected, token, now)
        return attempt

    def ended(self, sequence_id: int, called: float, returned: float) -> None:
        """`end` was answered."""
        self.ends.append((sequence_id, called, returned))

    def fences_with(self, token: bytes, now: float) -> None:
        """Somebody calls to set a token, which is unique."""
        self.tokens[token] = now

    def fenced(self, token: bytes, called: float, returned: float) -> None:
        """A fence was answered; tokens are unique."""
        self.fences.append(ConfirmedFence(token, called, returned))

    def check(self, final: Sequence[tuple[int, bytes]]) -> None:
        """Compares the history with the whole log.

        Args:
            final: offset and value of each record, from offset 0 on.

        Raises:
            AssertionError: one of the rules does not hold.
        """
        assert [offset for offset, _ in final] == list(range(len(final))), "the log has gaps"
        places = {value: offset for offset, value in final}
        assert len(places) == len(final), "a record is in the log twice"
        for attempt in self.attempts.values():
            self._check_outcome(attempt, places.get(attempt.value))
        for value, offset in places.items():
            assert value in self.attempts, f"nobody wrote {value!r}"
            expected = self.attempts[value].expected
            assert expected in (None, offset - 1), f"{value!r} is at offset {offset} and expected {expected}"
        self._check_ends(places)
        self._check_tokens()

    @staticmethod
    def _check_outcome(attempt: WriteAttempt, place: int | None) -> None:
        if attempt.offset is not None:
            assert place == attempt.offset, f"{attempt.value!r} was acknowledged at {attempt.offset} and is at {place}"
        if attempt.is_refused:
            assert place is None, f"{attempt.value!r} was refused and is at offset {place}"

    def _check_ends(self, places: Mapping[bytes, int]) -> None:
        began = {offset: self.attempts[value].called for value, offset in places.items()}
        acknowledged = sorted(
            (each.returned, each.offset) for each in self.attempts.values() if each.offset is not None
        )
        times = [returned for returned, _ in acknowledged]
        highest = [-1]
        for _, offset in acknowledged:
            highest.append(max(highest[-1], offset))
        named = list(self.ends)
        for attempt in self.attempts.values():
            current, expected = attempt.current, attempt.expected
            if current is not None:
                assert expected is not None, f"{attempt.value!r} was refused and expected nothing"
                assert current != expected, f"{attempt.value!r} was refused by what it expected"
                named.append((current, attempt.called if expected > current else -inf, attempt.returned))
        for current, called, returned in named:
            before = highest[bisect_left(times, called)]
            assert current >= before, f"an answer names end {current}, and {before} was acknowledged before the call"
            assert current == -1 or began.get(current, inf) <= returned, (
                f"an answer names {current}, which was not there"
            )

    def _check_tokens(self) -> None:
        confirmed = {fence.token: fence for fence in self.fences}
        first = min((fence.returned for fence in self.fences), default=inf)
        for attempt in self.attempts.values():
            named = attempt.refused_for
            if named:
                assert self.tokens.get(named, inf) <= attempt.returned, f"{attempt.value!r} was refused for {named!r}"
            elif named is not None:
                assert attempt.called <= first, f"{attempt.value!r} was refused for no token, and there was one"
            if attempt.token is None or attempt.offset is None:
                continue
            own = confirmed.get(attempt.token)
            began = -inf if own is None else own.returned
            for fence in self.fences:
                later = fence.token != attempt.token and fence.called > began and fence.returned < attempt.called
                assert not later, f"{attempt.value!r} was written after {fence.token!r} was confirmed"
