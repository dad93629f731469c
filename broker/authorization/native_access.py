"""The questions of the native service's methods to the authorizer. Pure.

1. A method asks before it looks up a topic or a subscription: a refusal does not reveal whether the topic or
   subscription exists.
2. A consumer whose session is no longer authorized is detached when its client next grants permits; attaching it again
   is refused.
"""

from __future__ import annotations

from functools import lru_cache

from gnomon.broker.authorization.authorizer import Access, Authorizer, denial
from gnomon.broker.authorization.native_table import NATIVE_RULES, NativeMethod
from gnomon.broker.authorization.operation import CLUSTER, Operation, Resource
from gnomon.broker.authorization.session import ANONYMOUS, Session
from gnomon.client.errors import NotAuthorized

LISTENER = "NATIVE"


class NativeAccess:
    """Decides for calls of the native service."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._access = Access(authorizer, NATIVE_RULES)

    @property
    def revision(self) -> int:
        """See `Authorizer.revision`."""
        return self._access.revision

    def question(self, method: NativeMethod, peer: str) -> NativeQuestion:
        """The questions of one call; `peer` is the address of the caller (`Call.peer`)."""
        return NativeQuestion(self._access, method, _session_of(peer))


@lru_cache
def _session_of(peer: str) -> Session:
    # Native clients give no name to their connections, only to their consumers.
    return Session(ANONYMOUS, LISTENER, "", peer.rpartition(":")[0])


class NativeQuestion:
    """The questions of one call of the native service."""

    def __init__(self, access: Access[NativeMethod], method: NativeMethod, session: Session) -> None:
        self._access = access
        self._method = method
        self._session = session

    def allows(self, operation: Operation, resource: Resource) -> bool:
        """Whether the session of the call may do an operation on a resource."""
        return self._access.allows(self._method, self._session, operation, resource)

    def refusal(self, operation: Operation, resource: Resource) -> NotAuthorized:
        """The error for an operation that is not allowed."""
        return NotAuthorized(denial(self._session, operation, resource))

    def check(self, operation: Operation, resource: Resource = CLUSTER) -> None:
        """Checks that the session of the call may do an operation on a resource.

        Raises:
            NotAuthorized: the session may not.
        """
        if not self.allows(operation, resource):
            raise self.refusal(operation, resource)
