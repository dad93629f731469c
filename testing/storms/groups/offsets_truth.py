"""Judges the committed offsets of one group, which expire and are deleted while commits are under way. Pure.

    truth = OffsetsTruth(retention_seconds=4.0)
    commit = truth.commits(("orders", 0), offset=17, called=2.0)      # unknown until it is settled
    commit.settle(CommitOutcome.DONE, now=2.1)
    truth.fetched(("orders", 0), offset=17, called=3.0, answered=3.1)
    assert truth.wrong == []

1. A fetch shows an offset that was committed, and not refused; each offset is committed once to a place.
2. After a commit succeeded, a fetch shows no commit that had ended before it was sent.
3. After a deletion succeeded, or after a fetch that showed no offset, no commit is shown that had ended before.
4. A place without an offset needs a cause after each commit that succeeded: a deletion, or an expiry that was allowed,
   of that commit or of one that may have overwritten it.
5. The retention time of an offset begins when the last member is gone. It begins at the commit if no member ever joined
   or if no member reads the topic, and a commit with a retention time of its own lasts as long as that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from gnomon.testing.storms.kafka.group_checker import NO_OFFSET, CommitOutcome

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""


@dataclass(slots=True, eq=False)
class OffsetChange:
    """A request that changes offsets; an unknown one may take effect at any time after `called`."""

    called: float
    settled: float = inf
    outcome: CommitOutcome = CommitOutcome.UNKNOWN

    def settle(self, outcome: CommitOutcome, now: float) -> None:
        """The client got the answer."""
        self.outcome, self.settled = outcome, now


@dataclass(slots=True, eq=False)
class OffsetCommit(OffsetChange):
    """The commit of one offset; `lasts_seconds` is the retention time that the commit itself gives."""

    offset: int = NO_OFFSET
    lasts_seconds: float | None = None


@dataclass(slots=True, eq=False)
class Deletion(OffsetChange):
    """A deletion of the offset of one place, or of the whole group."""

    place: Place | None = None


class OffsetsTruth:
    """The offsets of one group, and the contradictions found so far in `wrong`.

    Args:
        retention_seconds: `offsets.retention.minutes` in seconds.
        has_members: whether members ever join the group.
        unread: topics that no member reads.
    """

    def __init__(
        self, retention_seconds: float, *, has_members: bool = True, unread: frozenset[str] = frozenset()
    ) -> None:
        self.wrong: list[str] = []
        self.gone = 0
        """The number of fetches that showed no offset although there had been one."""
        self._retention_seconds = retention_seconds
        self._has_members = has_members
        self._unread = unread
        self._commits: dict[Place, dict[int, OffsetCommit]] = {}
        self._deletions: list[Deletion] = []
        self._members: list[tuple[float, float]] = []

    def commits(self, place: Place, offset: int, called: float, lasts_seconds: float | None = None) -> OffsetCommit:
        """A client sends a commit."""
        known = self._commits.setdefault(place, {})
        assert offset not in known, f"offset {offset} was committed to {place} before"
        known[offset] = OffsetCommit(called, offset=offset, lasts_seconds=lasts_seconds)
        return known[offset]

    def deletes(self, place: Place | None, called: float) -> Deletion:
        """A client asks for the deletion of an offset, or of the group (None)."""
        deletion = Deletion(called, place=place)
        self._deletions.append(deletion)
        return deletion

    def had_members(self, called: float, settled: float) -> None:
        """The durable group certainly had a member at an instant of this span."""
        self._members.append((called, settled))

    def fetched(self, place: Place, offset: int, called: float, answered: float) -> None:
        """A fetch showed an offset of a place, or NO_OFFSET."""
        commits = self._commits.get(place, {})
        if offset == NO_OFFSET:
            self._shown_none(place, commits, called, answered)
            return
        commit = commits.get(offset)
        if commit is None or commit.outcome is CommitOutcome.REFUSED:
            what = "was never committed" if commit is None else "was refused"
            self.wrong.append(f"offset {offset} of {place} is shown, and it {what}")
            return
        if commit.outcome is CommitOutcome.UNKNOWN:
            commit.settle(CommitOutcome.DONE, answered)
            return
        done = [other for other in commits.values() if other.outcome is CommitOutcome.DONE and other.settled < called]
        if later := [other.offset for other in done if commit.settled < other.called]:
            self.wrong.append(f"{place} went back to offset {offset} after {max(later)} was committed")
        for deletion in self._deletions_of(place):
            if (
                deletion.outcome is CommitOutcome.DONE
                and commit.settled < deletion.called
                and deletion.settled < called
            ):
                self.wrong.append(f"offset {offset} of {place} is shown at {called:.3f}, {_told(deletion)}")

    def _shown_none(self, place: Place, commits: dict[int, OffsetCommit], called: float, answered: float) -> None:
        done = [each for each in commits.values() if each.outcome is CommitOutcome.DONE and each.settled < called]
        for commit in done:
            last = [each for each in commits.values() if each.outcome is not CommitOutcome.REFUSED]
            last = [each for each in last if each.settled > commit.called and each.called < answered]
            if not any(self._may_be_gone(place, each, answered) for each in last):
                self.wrong.append(
                    f"offset {commit.offset} of {place}, committed at {commit.called:.3f}, is gone at {answered:.3f} "
                    f"without a cause"
                )
        if done:
            self.gone += 1
            self._deletions.append(Deletion(called, answered, CommitOutcome.DONE, place))

    def _may_be_gone(self, place: Place, commit: OffsetCommit, until: float) -> bool:
        deleted = any(
            each.outcome is not CommitOutcome.REFUSED and each.settled > commit.called and each.called < until
            for each in self._deletions_of(place)
        )
        return deleted or self._may_have_expired(place, commit, until)

    def _may_have_expired(self, place: Place, commit: OffsetCommit, until: float) -> bool:
        if commit.lasts_seconds is not None:
            return until >= commit.called + commit.lasts_seconds
        end = commit.called + self._retention_seconds
        if until >= end and (not self._has_members or place[0] in self._unread):
            return True
        return self._has_members and self.may_be_without_members(commit.called, until, self._retention_seconds)

    def may_be_without_members(self, since: float, until: float, seconds: float) -> bool:
        """Whether the group may have been without members for `seconds`, at an instant between `since` and `until`."""
        ends = [until, *(settled for _, settled in self._members if since <= settled <= until)]
        return any(self._may_end_without(end, seconds) for end in ends)

    def _may_end_without(self, end: float, seconds: float) -> bool:
        return not any(called >= end - seconds and settled < end for called, settled in self._members)

    def may_have_ended(self, since: float, until: float) -> bool:
        """Whether the group may have been deleted or forgotten between two times, so that it began again."""
        lasting = [each.lasts_seconds for commits in self._commits.values() for each in commits.values()]
        shortest = min([self._retention_seconds, *(seconds for seconds in lasting if seconds is not None)])
        deleted = any(
            each.outcome is not CommitOutcome.REFUSED and each.settled >= since and each.called <= until
            for each in self._deletions
        )
        return deleted or self.may_be_without_members(since, until, shortest)

    def _deletions_of(self, place: Place) -> Iterator[Deletion]:
        return (each for each in self._deletions if each.place in (None, place))


def _told(deletion: Deletion) -> str:
    return f"which was deleted from {deletion.called:.3f} to {deletion.settled:.3f}"
