"""Access control lists: refused with SECURITY_DISABLED, as Kafka does where no authorizer is configured.

Tools that ask of their own accord (consoles, MirrorMaker) take it as "there are none" and go on; where the keys are not
served they show an error page, or try again for ever.
"""

from __future__ import annotations

from gnomon.broker.kafka.request import Handler, Request, too_many
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
REASON = "ACLs are not built yet: whoever reaches the port may read and write."


def _describe(request: Request) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=REFUSED, error_message=REASON)


def _create(request: Request) -> CreateAclsResponse | None:
    message: CreateAclsRequest = request.message
    if too_many(request, len(message.creations), "ACLs"):
        return None
    refused = AclCreationResult(error_code=REFUSED, error_message=REASON)
    return CreateAclsResponse(results=[refused] * len(message.creations))


def _delete(request: Request) -> DeleteAclsResponse | None:
    message: DeleteAclsRequest = request.message
    if too_many(request, len(message.filters), "filters"):
        return None
    refused = DeleteAclsFilterResult(error_code=REFUSED, error_message=REASON)
    return DeleteAclsResponse(filter_results=[refused] * len(message.filters))


ACL_HANDLERS: dict[int, Handler] = {
    ApiKey.DESCRIBE_ACLS: _describe,
    ApiKey.CREATE_ACLS: _create,
    ApiKey.DELETE_ACLS: _delete,
}
