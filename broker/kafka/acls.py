"""Access control lists: requests are refused with SECURITY_DISABLED, as in a Kafka without an authorizer.

Some tools (consoles, MirrorMaker) always ask for ACLs. They read this error as "no ACLs" and continue. If the API keys
were not served, these tools would show an error page, or retry for ever.
"""

from __future__ import annotations

from functools import partial

from gnomon.broker.kafka.connections.refusal_log import ACLS, RefusalLog
from gnomon.broker.kafka.connections.request import Handler, Request
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsResponse,
)

REFUSED = ErrorCode.SECURITY_DISABLED


def _describe(request: Request) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=REFUSED, error_message=ACLS)


def _create(refusals: RefusalLog, request: Request) -> CreateAclsResponse:
    message: CreateAclsRequest = request.message
    refusals.refused(request.exchange, ACLS)
    refused = AclCreationResult(error_code=REFUSED, error_message=ACLS)
    return CreateAclsResponse(results=[refused] * len(message.creations))


def _delete(refusals: RefusalLog, request: Request) -> DeleteAclsResponse:
    message: DeleteAclsRequest = request.message
    refusals.refused(request.exchange, ACLS)
    refused = DeleteAclsFilterResult(error_code=REFUSED, error_message=ACLS)
    return DeleteAclsResponse(filter_results=[refused] * len(message.filters))


def acl_handlers(refusals: RefusalLog) -> dict[int, Handler]:
    """The handler of each API key. DescribeAcls is not logged: consoles send it on their own."""
    return {
        ApiKey.DESCRIBE_ACLS: _describe,
        ApiKey.CREATE_ACLS: partial(_create, refusals),
        ApiKey.DELETE_ACLS: partial(_delete, refusals),
    }
