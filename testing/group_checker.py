"""Judges a consumer group by what its members were told. Pure.

    history = GroupHistory()
    history.synced("member-1", generation=3, called=1.0, now=1.2, plan="consumer-1/7", partitions=(0, 2))
    commit = history.commits(partition=0, offset=17, now=2.0)     # unknown until it is settled
    commit.settle(Outcome.DONE, now=2.1)
    history.fetched(partition=0, offset=17, called=3.0)
    assert history.wrong == []

1. A generation has one plan, and in it each partition has one member at most.
2. Once somebody was told the plan of a generation, whoever asks in an older one is refused.
3. A committed offset that was told as done is followed by those that were asked for later, or are unknown; what was
   refused is never seen, nor is what nobody committed.

Each offset is committed once, so that an offset names its commit. The group is never without offsets, so that it is
not forgotten and its generations only grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NO_OFFSET = -1


class Outcome(Enum):
    """What a member was told of a commit."""

    UNKNOWN = "unknown"
    DONE = "done"
    REFUSED = "refused"


@dataclass(slots=True)
class Commit:
    """One offset of one partition."""

    offset: int
    called: float
    settled: float = float("inf")
    outcome: Outcome = Outcome.UNKNOWN

    def settle(self, outcome: Outcome, now: float) -> None:
        """The member was told."""
        self.outcome = outcome
        self.settled = now


class GroupHistory:
    """What happened to one group."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self._plans: dict[int, str] = {}
        self._owners: dict[tuple[int, int], str] = {}
        """Generation and partition → member."""
        self._told: dict[int, float] = {}
        """Generation → when its plan was first told."""
        self._commits: dict[int, dict[int, Commit]] = {}

    @property
    def generation(self) -> int:
        """The highest one whose plan somebody was told, 0 for none."""
        return max(self._told, default=0)

    def synced(
        self, member: str, generation: int, called: float, now: float, plan: str, partitions: tuple[int, ...]
    ) -> None:
        """A member was told what it has in a generation, and by which plan."""
        known = self._plans.setdefault(generation, plan)
        if known != plan:
            self.wrong.append(f"generation {generation} has plan {known} and, to {member}, {plan}")
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), member)
            if owner != member:
                self.wrong.append(f"partition {partition} is {owner}'s and {member}'s in generation {generation}")
        self.accepted(member, generation, called, "sync")
        self._told.setdefault(generation, now)

    def accepted(self, member: str, generation: int, called: float, what: str) -> None:
        """A member was told that what it asked for in a generation is well."""
        later = [other for other, told in self._told.items() if other > generation and told < called]
        if later:
            self.wrong.append(f"a {what} of {member} in generation {generation} was taken after {max(later)} began")

    def commits(self, partition: int, offset: int, now: float) -> Commit:
        """A member asks for a commit."""
        commit = Commit(offset, now)
        assert offset not in self._commits.setdefault(partition, {}), f"offset {offset} was committed before"
        self._commits[partition][offset] = commit
        return commit

    def fetched(self, partition: int, offset: int, called: float) -> None:
        """Somebody was told what is committed, who asked at `called`."""
        commits = self._commits.get(partition, {})
        commit = commits.get(offset)
        if offset != NO_OFFSET and (commit is None or commit.outcome is Outcome.REFUSED):
            what = "nobody committed" if commit is None else "was refused"
            self.wrong.append(f"offset {offset} of partition {partition} is seen, which {what}")
            return
        before = float("-inf") if commit is None else commit.settled if commit.outcome is Outcome.DONE else float("inf")
        later = [
            other.offset
            for other in commits.values()
            if other.outcome is Outcome.DONE and other.settled < called and before < other.called
        ]
        if later:
            self.wrong.append(f"partition {partition} went back to offset {offset} after {max(later)} was committed")
