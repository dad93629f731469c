"""Judges a consumer group by the answers that its members got. Pure.

    history = GroupHistory()
    history.synced("member-1", generation=3, called=1.0, now=1.2, plan="consumer-1/7", partitions=(0, 2))
    commit = history.commits(partition=0, offset=17, now=2.0)     # its outcome is unknown until it is settled
    commit.settle(Outcome.DONE, now=2.1)
    history.fetched(partition=0, offset=17, called=3.0)
    assert history.wrong == []

1. A generation has one plan, and in it each partition has one member at most.
2. After a member got the plan of a generation, a request that is sent in an older generation is refused.
3. After a commit C succeeded, a fetch of offsets shows the offset of C, of a commit that ended after C was sent, or of
   a commit of unknown outcome. A refused offset is never seen, nor is one that nobody committed.

Each offset is committed once, so that an offset names its commit. The group always has offsets, so that the broker
keeps it and its generations only grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NO_OFFSET = -1


class CommitOutcome(Enum):
    """The outcome of a commit, as its member knows it."""

    UNKNOWN = "unknown"
    DONE = "done"
    REFUSED = "refused"


@dataclass(slots=True)
class Commit:
    """The commit of one offset of one partition."""

    offset: int
    called: float
    settled: float = float("inf")
    outcome: CommitOutcome = CommitOutcome.UNKNOWN

    def settle(self, outcome: CommitOutcome, now: float) -> None:
        """The member got the answer."""
        self.outcome = outcome
        self.settled = now


class GroupHistory:
    """The history of one group, and its anomalies in `wrong`."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self._plans: dict[int, str] = {}
        self._owners: dict[tuple[int, int], str] = {}
        """Generation and partition → member."""
        self._planned: dict[int, float] = {}
        """Generation → when a member first got its plan."""
        self._commits: dict[int, dict[int, Commit]] = {}

    @property
    def generation(self) -> int:
        """The highest generation whose plan a member got, 0 for none."""
        return max(self._planned, default=0)

    def plan(self, generation: int) -> str | None:
        """The plan of a generation, as the first member got it."""
        return self._plans.get(generation)

    def continues(self, generation: int, called: float) -> bool:
        """Whether a plan asked for at `called` can be the first one of a generation."""
        later = (now for other, now in self._planned.items() if other > generation)
        return generation not in self._plans and not any(now < called for now in later)

    def synced(
        self, member: str, generation: int, called: float, now: float, plan: str, partitions: tuple[int, ...]
    ) -> None:
        """A member got its partitions in a generation, and the plan that assigns them."""
        known = self._plans.setdefault(generation, plan)
        if known != plan:
            self.wrong.append(f"generation {generation} has plan {known} and, to {member}, {plan}")
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), member)
            if owner != member:
                self.wrong.append(f"partition {partition} is {owner}'s and {member}'s in generation {generation}")
        self.accepted(member, generation, called, "sync")
        self._planned.setdefault(generation, now)

    def accepted(self, member: str, generation: int, called: float, what: str) -> None:
        """A member's request in a generation succeeded; `what` names the request."""
        later = [other for other, planned in self._planned.items() if other > generation and planned < called]
        if later:
            self.wrong.append(f"a {what} of {member} in generation {generation} was taken after {max(later)} began")

    def commits(self, partition: int, offset: int, now: float) -> Commit:
        """A member sends a commit."""
        commit = Commit(offset, now)
        assert offset not in self._commits.setdefault(partition, {}), f"offset {offset} was committed before"
        self._commits[partition][offset] = commit
        return commit

    def fetched(self, partition: int, offset: int, called: float) -> None:
        """A fetch of offsets, sent at `called`, returned an offset."""
        commits = self._commits.get(partition, {})
        commit = commits.get(offset)
        if offset != NO_OFFSET and (commit is None or commit.outcome is CommitOutcome.REFUSED):
            what = "was never committed" if commit is None else "was refused"
            self.wrong.append(f"offset {offset} of partition {partition} is seen, and it {what}")
            return
        before = (
            float("-inf")
            if commit is None
            else commit.settled
            if commit.outcome is CommitOutcome.DONE
            else float("inf")
        )
        later = [
            other.offset
            for other in commits.values()
            if other.outcome is CommitOutcome.DONE and other.settled < called and before < other.called
        ]
        if later:
            self.wrong.append(f"partition {partition} went back to offset {offset} after {max(later)} was committed")
