"""Judges the generations of one group by the answers that its members got, over the group's lives. Pure.

1. Within a life of the group, the rules of `group_checker` hold: one plan for each generation, one owner of each
   partition, and no request of an older generation after a newer one was planned.
2. Each member of a generation has an assignment, and keeps it, also a static member that comes back under a new id.
3. After an id of a static member got its assignment, no request of an older id of that member succeeds.
4. A group begins a new life only after it may have been deleted or forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

from gnomon.testing.storms.kafka.group_checker import GroupHistory


class Life:
    """One life of a group: from its first generation until it is deleted or forgotten.

    Args:
        asked: when the first answer of this life was asked for.
        begun: when it came.
    """

    def __init__(self, asked: float, begun: float) -> None:
        self.asked, self.begun = asked, begun
        self.history = GroupHistory()
        self.partitions: dict[tuple[int, str], tuple[int, ...]] = {}


class GenerationsTruth:
    """The generations of one group, and the contradictions found so far in `wrong`.

    Args:
        may_have_ended: whether the group may have ended between two times.
    """

    def __init__(self, may_have_ended: Callable[[float, float], bool]) -> None:
        self._may_have_ended = may_have_ended
        self._lives: list[Life] = []
        self._ids: dict[str, list[tuple[str, float]]] = {}
        """The ids of each static member, with the time when each first got its assignment, oldest first."""
        self._wrong: list[str] = []

    @property
    def wrong(self) -> list[str]:
        """The contradictions, in words."""
        return [*self._wrong, *(text for life in self._lives for text in life.history.wrong)]

    @property
    def lives(self) -> int:
        """The number of lives that the group had."""
        return len(self._lives)

    def synced(
        self,
        name: str,
        member_id: str,
        generation: int,
        called: float,
        now: float,
        plan: str,
        partitions: tuple[int, ...],
    ) -> Life:
        """A member got its partitions; returns the life of the group that its generation belongs to.

        Args:
            name: of the member, the same after a static member came back.
            plan: a text that no other assignment has.
        """
        if not plan:
            self._wrong.append(f"{name} has no assignment in generation {generation}")
        life = self._life_of(generation, plan, called, now)
        life.history.synced(name, generation, called, now, plan, partitions)
        before = life.partitions.setdefault((generation, name), partitions)
        if before != partitions:
            self._wrong.append(f"{name} had {before} in generation {generation}, and then {partitions}")
        ids = self._ids.setdefault(name, [])
        if member_id not in [known for known, _ in ids]:
            ids.append((member_id, now))
        return life

    def _life_of(self, generation: int, plan: str, called: float, now: float) -> Life:
        for life in self._lives:
            if life.history.plan(generation) == plan:
                return life
        last = self._lives[-1] if self._lives else None
        if last is not None and (
            last.history.continues(generation, called) or not self._may_have_ended(last.asked, now)
        ):
            return last
        self._lives.append(Life(called, now))
        return self._lives[-1]

    def accepted(self, life: Life, name: str, member_id: str, generation: int, called: float, what: str) -> None:
        """A request of a member in a generation of a life succeeded; `what` names the request."""
        life.history.accepted(name, generation, called, what)
        newest = self._lives[-1]
        if life is not newest and newest.begun < called:
            self._wrong.append(f"a {what} of {name} succeeded after the group had begun again")
        ids = [known for known, _ in self._ids[name]]
        later = [since for _, since in self._ids[name][ids.index(member_id) + 1 :] if since < called]
        if later:
            self._wrong.append(f"a {what} of {name} as {member_id} succeeded, and the member has had a newer id")
