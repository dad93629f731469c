"""Authorizers of tests: they refuse given operations, and record the operations that they were asked for."""

from __future__ import annotations

from collections.abc import Collection

from gnomon.broker.authorization.operation import Operation, Resource, ResourceType
from gnomon.broker.authorization.session import Session

Asked = tuple[Operation, ResourceType]


class Refusing:
    """Allows everything except the operations in `refused`, on resources of any name or of the names given."""

    def __init__(self, refused: Collection[Asked] = (), names: Collection[str] | None = None) -> None:
        self.revision = 0
        self.asked: set[Asked] = set()
        self.sessions: list[Session] = []
        self._refused = set(refused)
        self._names = names

    def refuse(self, refused: Collection[Asked], names: Collection[str] | None = None) -> None:
        """From now on `refused` is refused, and nothing else."""
        self._refused, self._names = set(refused), names
        self.revision += 1

    def allows(self, session: Session, operation: Operation, resource: Resource) -> bool:
        self.asked.add((operation, resource.type))
        self.sessions.append(session)
        named = self._names is None or resource.name in self._names
        return (operation, resource.type) not in self._refused or not named

    def allows_any(self, session: Session, operation: Operation, type: ResourceType) -> bool:
        self.asked.add((operation, type))
        return (operation, type) not in self._refused


class Only:
    """Refuses everything except the operations in `allowed`."""

    def __init__(self, allowed: Collection[Asked] = ()) -> None:
        self.revision = 0
        self._allowed = set(allowed)

    def allow(self, allowed: Collection[Asked]) -> None:
        """From now on `allowed` is allowed, and nothing else."""
        self._allowed = set(allowed)
        self.revision += 1

    def allows(self, session: Session, operation: Operation, resource: Resource) -> bool:
        return (operation, resource.type) in self._allowed

    def allows_any(self, session: Session, operation: Operation, type: ResourceType) -> bool:
        return (operation, type) in self._allowed
