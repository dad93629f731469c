"""The questions of a guard: may the session of a request use the resources that the request names?

1. A guard asks for the operations that `kafka_table` names for its API. It answers a request that is refused as a
   whole. Otherwise it removes each refused resource from the request, and adds the resource's error to the answer
   (`Request.amend`).
2. A resource is judged by its name, before it is looked up: a refusal does not reveal whether it exists.
3. The guard itself answers a topic id that no topic has: there is no name to judge.
4. A guard changes only the request, and the answer when it is amended: for a long request both are done in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.authorization.operation import CLUSTER, Operation, Resource, ResourceType
from gnomon.broker.kafka.connections.request import Request
from gnomon.wire.kafka.api import APIS, ApiKey
from gnomon.wire.kafka.fields import ProtocolMessage

Item = TypeVar("Item")
Guard: TypeAlias = Callable[["Question"], ProtocolMessage | None]
"""Returns the answer to a request that is refused as a whole; None lets the request continue."""
Guards: TypeAlias = Mapping[ApiKey, Guard]


class Question:
    """The questions about one request; `message` is the request's."""

    def __init__(self, access: Access[ApiKey], request: Request) -> None:
        self._access = access
        self.request = request
        self.message: Any = request.message
        self._api = ApiKey(request.exchange.api_key)

    def allows(self, operation: Operation, resource: Resource = CLUSTER) -> bool:
        """Whether the session of the request may do an operation on a resource."""
        return self._access.allows(self._api, self.request.session, operation, resource)

    def allows_any(self, operation: Operation, type: ResourceType) -> bool:
        """Whether the session of the request may do an operation on some resource of a type."""
        return self._access.allows_any(self._api, self.request.session, operation, type)

    def split(
        self, items: Iterable[Item], operation: Operation, resource_of: Callable[[Item], Resource]
    ) -> tuple[list[Item], list[Item]]:
        """The items that the session may use, and those that it may not; each resource is judged once."""
        judged: dict[Resource, bool] = {}
        sides: tuple[list[Item], list[Item]] = [], []
        for item in items:
            resource = resource_of(item)
            allowed = judged.get(resource)
            if allowed is None:
                allowed = judged[resource] = self.allows(operation, resource)
            sides[not allowed].append(item)
        return sides

    def operations(self, resource: Resource, candidates: Iterable[Operation]) -> int:
        """The operations of `candidates` that the session may do on a resource, as a bit field (KIP-430)."""
        session = self.request.session
        allowed = (each for each in candidates if self._access.authorizer.allows(session, each, resource))
        return sum(1 << each for each in allowed)

    def answer(self, **fields: Any) -> ProtocolMessage:
        """The answer of the request's API with these fields."""
        return APIS[self._api].response(**fields)

    def refuse_items(
        self,
        items: str,
        operation: Operation,
        resource_of: Callable[[Any], Resource],
        refusal: Callable[[Any], object],
        answers: str,
    ) -> ProtocolMessage | None:
        """Takes the items that the session may not use out of the request, and adds a refusal of each to the answer.

        Args:
            items: the field of the request that lists the items.
            refusal: makes the refusal of an item.
            answers: the field of the answer that lists the results.
        """
        kept, refused = self.split(getattr(self.message, items), operation, resource_of)
        setattr(self.message, items, kept)
        return self.refuse_some(kept, [refusal(each) for each in refused], answers)

    def refuse_some(self, kept: Sequence[object], refusals: Sequence[object], answers: str) -> ProtocolMessage | None:
        """Continues the request with `kept`, and adds the refusals to its answer; with nothing kept, answers at once.

        Args:
            answers: the field of the answer that lists the results.
        """
        if not refusals:
            return None
        if not kept:
            return self.answer(**{answers: list(refusals)})
        self.request.amend(lambda response: getattr(response, answers).extend(refusals))
        return None
