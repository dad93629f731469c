"""Reading and altering configs of topics and brokers."""

from __future__ import annotations

from gnomon.wire.kafka.schema import ProtocolMessage, Struct, array, boolean, int8, int16, int32, nullable_array, string


class DescribeConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = nullable_array(string)


class DescribeConfigsRequest(ProtocolMessage, key=32, versions=(1, 4), flexible=4):
    """Asks for configs of resources; null keys are all keys."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(since=3, essential=True)


class DescribeConfigsSynonym(Struct):
    name: str = string()
    value: str | None = string.nullable()
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    name: str = string()
    value: str | None = string.nullable()
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8(since=3)
    documentation: str | None = string.nullable(since=3)


class DescribeConfigsResult(Struct):
    error_code: int = int16()
    error_message: str | None = string.nullable()
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(ProtocolMessage, key=32, versions=(1, 4), flexible=4):
    """Configs with source, type and synonyms."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


class AlterableConfig(Struct):
    name: str = string()
    value: str | None = string.nullable()


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(ProtocolMessage, key=33, versions=(0, 2), flexible=2):
    """Replaces all configs of each resource."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string.nullable()
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(ProtocolMessage, key=33, versions=(0, 2), flexible=2):
    """The outcome for each resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


class IncrementalAlterableConfig(Struct):
    name: str = string()
    config_operation: int = int8()
    value: str | None = string.nullable()


class IncrementalAlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[IncrementalAlterableConfig] = array(IncrementalAlterableConfig)


class IncrementalAlterConfigsRequest(ProtocolMessage, key=44, versions=(0, 1), flexible=1):
    """Sets (0), deletes (1), appends (2) or subtracts (3) single configs."""

    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string.nullable()
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(ProtocolMessage, key=44, versions=(0, 1), flexible=1):
    """The outcome for each resource."""

    throttle_time_ms: int = int32()
    responses: list[IncrementalAlterConfigsResourceResponse] = array(IncrementalAlterConfigsResourceResponse)
