"""The authorizer: decides whether a session may do an operation on a resource.

1. A front end asks, for each of its APIs, only about the operations that its table names for this API (`kafka_table`,
   `native_table`, `admin_table`): `Access` asserts this. The lists of allowed operations in answers (KIP-430) are an
   exception.
2. A decision may change at any time. `revision` then grows, and code that remembers a decision asks again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from gnomon.broker.authorization.operation import DENIED, Operation, Resource, ResourceType
from gnomon.broker.authorization.rule import Rule
from gnomon.broker.authorization.session import Session
from gnomon.broker.errors import KafkaError

Key = TypeVar("Key", bound=Hashable)


class Authorizer(Protocol):
    """Decides the questions of the front ends."""

    @property
    def revision(self) -> int:
        """Grows whenever a decision may differ from the one before."""

    def allows(self, session: Session, operation: Operation, resource: Resource) -> bool:
        """Whether the session may do the operation on the resource."""

    def allows_any(self, session: Session, operation: Operation, type: ResourceType) -> bool:
        """Whether there may be a resource of this type on which the session may do the operation."""


class AllowAll:
    """The default: every session may do everything."""

    revision = 0

    def allows(self, session: Session, operation: Operation, resource: Resource) -> bool:
        """True."""
        return True

    def allows_any(self, session: Session, operation: Operation, type: ResourceType) -> bool:
        """True."""
        return True


ALLOW_ALL: Final[Authorizer] = AllowAll()


class Access(Generic[Key]):
    """The questions of one front end to the authorizer, each checked against the table of its APIs."""

    def __init__(self, authorizer: Authorizer, rules: Mapping[Key, Sequence[Rule]]) -> None:
        self.authorizer = authorizer
        self._asked = {(api, rule.operation, rule.type) for api, some in rules.items() for rule in some}

    @property
    def revision(self) -> int:
        """See `Authorizer.revision`."""
        return self.authorizer.revision

    def _assert_named(self, api: Key, operation: Operation, type: ResourceType) -> None:
        assert (api, operation, type) in self._asked, (
            f"{api!r} asks for {operation.name} on a {type.name}, which its table does not name"
        )

    def allows(self, api: Key, session: Session, operation: Operation, resource: Resource) -> bool:
        """Whether a session may do an operation of an API on a resource."""
        self._assert_named(api, operation, resource.type)
        return self.authorizer.allows(session, operation, resource)

    def allows_any(self, api: Key, session: Session, operation: Operation, type: ResourceType) -> bool:
        """Whether a session may do an operation of an API on some resource of a type."""
        self._assert_named(api, operation, type)
        return self.authorizer.allows_any(session, operation, type)

    def check(self, api: Key, session: Session, operation: Operation, resource: Resource) -> None:
        """Checks that a session may do an operation of an API on a resource.

        Raises:
            KafkaError: the session may not; the code is that of the resource's type.
        """
        if not self.allows(api, session, operation, resource):
            raise KafkaError(DENIED[resource.type], denial(session, operation, resource))


def denial(session: Session, operation: Operation, resource: Resource) -> str:
    """The text of an error for an operation that is not authorized."""
    type = resource.type.name.lower().replace("_", " ")
    return f"'{session.principal}' is not authorized for {operation.name} on {type} '{resource.name}'"
