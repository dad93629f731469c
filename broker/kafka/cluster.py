"""What a client asks first: the versions served, the brokers, who coordinates, a producer id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.broker.errors import KafkaError
from gnomon.broker.kafka.metadata import CLUSTER_OPERATIONS
from gnomon.broker.kafka.request import Handler, Request
from gnomon.wire.kafka.api import APIS, ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import (
    ApiVersion,
    ApiVersionsResponse,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    SaslHandshakeResponse,
)
from gnomon.wire.kafka.messages.group import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from gnomon.wire.kafka.messages.produce import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from gnomon.broker.broker import Broker

GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
BROKERS_ENDPOINT_TYPE = 1
CONTROLLERS_ENDPOINT_TYPE = 2


class ClusterHandlers:
    """Answers ApiVersions, SaslHandshake, DescribeCluster, FindCoordinator and InitProducerId for one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, Handler]:
        """The handler of each API key."""
        return {
            ApiKey.API_VERSIONS: lambda request: self.api_versions_response(ErrorCode.NONE),
            ApiKey.SASL_HANDSHAKE: self.sasl_handshake,
            ApiKey.DESCRIBE_CLUSTER: self.describe_cluster,
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
        }

    @staticmethod
    def api_versions_response(error: ErrorCode) -> ApiVersionsResponse:
        """The table of what is served."""
        return ApiVersionsResponse(
            error_code=error,
            api_keys=[
                ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
                for api in APIS.values()
            ],
        )

    @staticmethod
    def sasl_handshake(request: Request) -> SaslHandshakeResponse:
        """Refuses, as Kafka does on a port without SASL: clients give up at once; closed connections they try again."""
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

    def describe_cluster(self, request: Request) -> DescribeClusterResponse:
        """The brokers and the controller; one who asks for controllers has come to the wrong port (KIP-919)."""
        message: DescribeClusterRequest = request.message
        broker = self._broker
        if message.endpoint_type != BROKERS_ENDPOINT_TYPE:
            controllers = message.endpoint_type == CONTROLLERS_ENDPOINT_TYPE
            return DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if controllers else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message="there are no controller endpoints: ask for the brokers (endpoint type 1)",
            )
        response = DescribeClusterResponse(
            cluster_id=broker.cluster_id,
            controller_id=broker.leadership.controller,
            brokers=[
                DescribeClusterBroker(broker_id=one.id, host=one.host, port=one.port, rack=one.rack or None)
                for one in broker.brokers_told()
            ],
        )
        if message.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response

    async def find_coordinator(self, request: Request) -> FindCoordinatorResponse:
        """Who leads a group's partition of the offsets topic coordinates it; nobody coordinates transactions yet."""
        message: FindCoordinatorRequest = request.message
        keys = message.coordinator_keys if request.version >= 4 else [message.key]
        if message.key_type == GROUP_KEY_TYPE:
            try:
                await self._broker.topic_admin.offsets_topic()
            except KafkaError as error:
                code, text = ErrorCode.COORDINATOR_NOT_AVAILABLE, error.text
                found = [Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=text) for key in keys]
            else:
                found = [self._coordinator(key) for key in keys]
        else:
            text = "transactions and share groups are not built yet: only groups (key type 0) have a coordinator"
            # Clients give up on the first; librdkafka would ask again until its time-out after any other.
            transactions = message.key_type == TRANSACTION_KEY_TYPE
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if transactions else ErrorCode.INVALID_REQUEST
            found = [Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=text) for key in keys]
        if request.version >= 4:
            return FindCoordinatorResponse(coordinators=found)
        only = found[0]
        return FindCoordinatorResponse(
            error_code=only.error_code,
            error_message=only.error_message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )

    def _coordinator(self, group_id: str) -> Coordinator:
        one = self._broker.coordinator_of(group_id)
        if one is None:
            code, text = ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker leads the group's partition at the moment"
            return Coordinator(key=group_id, node_id=-1, port=-1, error_code=code, error_message=text)
        return Coordinator(key=group_id, node_id=one.id, host=one.host, port=one.port)

    async def init_producer_id(self, request: Request) -> InitProducerIdResponse:
        """A new producer id for an idempotent producer; epochs begin at 0."""
        message: InitProducerIdRequest = request.message
        if message.transactional_id is not None:
            return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        try:
            return InitProducerIdResponse(producer_id=await self._broker.producer_ids.next())
        except KafkaError as error:
            return InitProducerIdResponse(error_code=error.code)
