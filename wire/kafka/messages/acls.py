"""Access control lists: DescribeAcls, CreateAcls, DeleteAcls."""

from __future__ import annotations

from gnomon.wire.kafka.schema import ProtocolMessage, Struct, array, int8, int16, int32, string

LITERAL = 3
"""The pattern type of a resource that is named as it is."""


class DescribeAclsRequest(ProtocolMessage, key=29, versions=(1, 3), flexible=2):
    """Asks for the rules that match a filter; null matches all."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string.nullable()
    pattern_type_filter: int = int8(default=LITERAL)
    principal_filter: str | None = string.nullable()
    host_filter: str | None = string.nullable()
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Struct):
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=LITERAL)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(ProtocolMessage, key=29, versions=(1, 3), flexible=2):
    """The rules, by resource."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string.nullable()
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)


class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(ProtocolMessage, key=30, versions=(1, 3), flexible=2):
    """Rules to create."""

    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    error_code: int = int16()
    error_message: str | None = string.nullable()


class CreateAclsResponse(ProtocolMessage, key=30, versions=(1, 3), flexible=2):
    """The outcome of each creation, in the order of the request."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)


class DeleteAclsFilter(Struct):
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string.nullable()
    pattern_type_filter: int = int8(default=LITERAL)
    principal_filter: str | None = string.nullable()
    host_filter: str | None = string.nullable()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsRequest(ProtocolMessage, key=31, versions=(1, 3), flexible=2):
    """Asks for the deletion of the rules that match any of the filters."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Struct):
    error_code: int = int16()
    error_message: str | None = string.nullable()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsFilterResult(Struct):
    error_code: int = int16()
    error_message: str | None = string.nullable()
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


class DeleteAclsResponse(ProtocolMessage, key=31, versions=(1, 3), flexible=2):
    """The rules that each filter removed, in the order of the request."""

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
