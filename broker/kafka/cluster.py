"""The first requests of a client: the versions served, the brokers, coordinators, a producer id."""

from __future__ import annotations

from gnomon.broker.errors import KafkaError
from gnomon.broker.kafka.connections.refusal_log import (
    SASL,
    SHARE_GROUPS,
    TEXT_CHARACTERS_MAX,
    TRANSACTIONS,
    RefusalLog,
)
from gnomon.broker.kafka.connections.request import Handler, Request
from gnomon.broker.placement.placement import Placement
from gnomon.broker.producer_ids import ProducerIds
from gnomon.broker.topics.offsets_topic import OffsetsTopic
from gnomon.runtime.loop.paced import paced
from gnomon.runtime.world import Clock
from gnomon.wire.kafka.api import APIS, ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    SaslHandshakeResponse,
)
from gnomon.wire.kafka.messages.group import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from gnomon.wire.kafka.messages.produce import InitProducerIdRequest, InitProducerIdResponse

KEYS_PER_TURN = 500
GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
BATCHED_SINCE = 4
"""FindCoordinator names several keys from this version on."""
BROKERS_ENDPOINT_TYPE = 1
CONTROLLERS_ENDPOINT_TYPE = 2


class ClusterHandlers:
    """Answers ApiVersions, SaslHandshake, DescribeCluster, FindCoordinator and InitProducerId for one broker."""

    def __init__(
        self,
        placement: Placement,
        offsets_topic: OffsetsTopic,
        producer_ids: ProducerIds,
        cluster_id: str,
        refusals: RefusalLog,
        clock: Clock,
    ) -> None:
        self._placement = placement
        self._offsets_topic = offsets_topic
        self._producer_ids = producer_ids
        self._cluster_id = cluster_id
        self._refusals = refusals
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        """The handler of each API key."""
        return {
            ApiKey.API_VERSIONS: self.api_versions,
            ApiKey.SASL_HANDSHAKE: self.sasl_handshake,
            ApiKey.DESCRIBE_CLUSTER: self.describe_cluster,
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
        }

    def api_versions(self, request: Request) -> ApiVersionsResponse:
        """The versions that are served; from version 3 on the client names its software."""
        message: ApiVersionsRequest = request.message
        software = f"{message.client_software_name} {message.client_software_version}".strip()
        request.exchange.connection.software = software[:TEXT_CHARACTERS_MAX]
        return self.api_versions_response(ErrorCode.NONE)

    @staticmethod
    def api_versions_response(error: ErrorCode) -> ApiVersionsResponse:
        """The response with the served APIs and their versions."""
        return ApiVersionsResponse(
            error_code=error,
            api_keys=[
                ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
                for api in APIS.values()
            ],
        )

    def sasl_handshake(self, request: Request) -> SaslHandshakeResponse:
        """Refuses, as Kafka does on a port without SASL: clients give up at once, instead of connecting again."""
        self._refusals.refused(request.exchange, SASL)
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

    def describe_cluster(self, request: Request) -> DescribeClusterResponse:
        """The brokers and the controller; a request for controller endpoints has the wrong port (KIP-919)."""
        message: DescribeClusterRequest = request.message
        if message.endpoint_type != BROKERS_ENDPOINT_TYPE:
            controllers = message.endpoint_type == CONTROLLERS_ENDPOINT_TYPE
            return DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if controllers else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message="there are no controller endpoints: ask for the brokers (endpoint type 1)",
            )
        brokers = self._placement.advertised(request.session.listener)
        return DescribeClusterResponse(
            cluster_id=self._cluster_id,
            controller_id=self._placement.controller(brokers),
            brokers=[
                DescribeClusterBroker(broker_id=one.id, host=one.host, port=one.port, rack=one.rack)
                for one in brokers.values()
            ],
        )

    async def find_coordinator(self, request: Request) -> FindCoordinatorResponse:
        """A group's coordinator is the leader of its partition of the offsets topic; transactions have none."""
        message: FindCoordinatorRequest = request.message
        keys = message.coordinator_keys if request.version >= BATCHED_SINCE else [message.key]
        if message.key_type == GROUP_KEY_TYPE:
            try:
                await self._offsets_topic.made()
            except KafkaError as error:
                code, text = ErrorCode.COORDINATOR_NOT_AVAILABLE, error.text
                found = [Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=text) for key in keys]
            else:
                listener = request.session.listener
                found = [self._coordinator(key, listener) async for key in paced(keys, KEYS_PER_TURN, self._clock)]
        else:
            code, text = _without_coordinator(message.key_type, request.version)
            self._refusals.refused(request.exchange, text)
            found = [Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=text) for key in keys]
        if request.version >= BATCHED_SINCE:
            return FindCoordinatorResponse(coordinators=found)
        only = found[0]
        return FindCoordinatorResponse(
            error_code=only.error_code,
            error_message=only.error_message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )

    def _coordinator(self, group_id: str, listener: str) -> Coordinator:
        one = self._offsets_topic.coordinator_of(group_id)
        at = None if one is None else one.endpoint(listener)
        if one is None or at is None:
            code, text = ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker leads the group's partition at the moment"
            if one is not None:
                text = f"broker {one.id}, which leads the group's partition, has no listener {listener}"
            return Coordinator(key=group_id, node_id=-1, port=-1, error_code=code, error_message=text)
        return Coordinator(key=group_id, node_id=one.id, host=at[0], port=at[1])

    async def init_producer_id(self, request: Request) -> InitProducerIdResponse:
        """A new producer id for an idempotent producer; epochs begin at 0."""
        message: InitProducerIdRequest = request.message
        if message.transactional_id is not None:
            self._refusals.refused(request.exchange, TRANSACTIONS)
            return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        try:
            return InitProducerIdResponse(producer_id=await self._producer_ids.next())
        except KafkaError as error:
            return InitProducerIdResponse(error_code=error.code)


def _without_coordinator(key_type: int, version: int) -> tuple[ErrorCode, str]:
    """The refusal of a client that looks for a coordinator of something other than groups.

    Clients that use the newer versions (Java, kafka-python, franz-go) report INVALID_REQUEST with the reason, or point
    to the broker's log. librdkafka uses an older version, and retries until its timeout after any error except
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which it reports with the reason.
    """
    if key_type != TRANSACTION_KEY_TYPE:
        return ErrorCode.INVALID_REQUEST, SHARE_GROUPS
    older = version < BATCHED_SINCE
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if older else ErrorCode.INVALID_REQUEST, TRANSACTIONS
