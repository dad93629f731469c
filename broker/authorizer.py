"""Who may do what to a topic: one question, asked where it matters.

Everybody may everything unless a node is told otherwise; there is nobody to tell apart yet, so all are `ANONYMOUS`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

from gnomon.broker.errors import KafkaError
from gnomon.wire.kafka.errors import ErrorCode

ANONYMOUS: Final = "anonymous"


class Permission(Enum):
    """What is asked for; the value stands in texts."""

    READ = "read it"
    WRITE_SHADOW_TOPIC = "write its SHADOW_TOPIC policy"
    """On a source: to cast and to delete its shadows. Their readers need READ on the shadow, nothing on the source."""


class Authorizer(Protocol):
    """Decides."""

    def allows(self, principal: str, permission: Permission, topic: str) -> bool:
        """Whether `principal` may do that to the topic of this name."""


class AllowAll:
    """Everybody may everything."""

    def allows(self, principal: str, permission: Permission, topic: str) -> bool:
        """See `Authorizer.allows`."""
        return True


def check(authorizer: Authorizer, permission: Permission, topic: str, principal: str = ANONYMOUS) -> None:
    """Returns where it is allowed.

    Raises:
        KafkaError: it is not.
    """
    if not authorizer.allows(principal, permission, topic):
        raise KafkaError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"'{principal}' may not {permission.value}: topic '{topic}'"
        )
