"""One rule of an authorization table: an operation that an API asks for, and the effect if it is refused. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gnomon.broker.authorization.operation import Operation, ResourceType


class RefusalEffect(Enum):
    """The effect of a missing authorization on the answer."""

    REQUEST = "the request is refused as a whole"
    ITEM = "the resource has the error of its type, the others are answered"
    HIDDEN = "the resource is left out of the answer"
    FALLBACK = "the next rule of the API is asked"
    FIELD = "one field of the answer has the error, or is empty"


class Rule(NamedTuple):
    """One operation that an API asks for."""

    operation: Operation
    type: ResourceType
    refusal: RefusalEffect
