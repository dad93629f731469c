"""Routes: a consumer's next Fetch request is recognized by its bytes, if only correlation id and offset differ.

The comparison of bytes replaces parsing and look-ups. Together with `poll` invariant 4 it cuts the Python time of a
delivery from 42 to 12 us, if 200 consumers wait for the next record of one partition.

1. A route takes a request only if all its bytes, except for the correlation id and the fetch offset, are those of the
   request that the route was made from. The original request had no fetch session.
2. A route takes no request after a topic was deleted, after leaders changed, after the authorizer's revision changed,
   or while the broker's lease may have ended. Such a request is parsed.
"""

from __future__ import annotations

from struct import Struct

from gnomon.broker.authorization.authorizer import Access
from gnomon.broker.authorization.operation import Operation
from gnomon.broker.authorization.operation import topic as topic_resource
from gnomon.broker.errors import KafkaError
from gnomon.broker.in_use.routes import Routes
from gnomon.broker.kafka.connections.exchange import Exchange
from gnomon.broker.kafka.fetch_sessions import FINAL_EPOCH, Followed
from gnomon.broker.kafka.poll import Poll, Polls
from gnomon.broker.partition.readable import Readable
from gnomon.broker.placement.placement import Placement
from gnomon.broker.topics.topics import Topics
from gnomon.wire.kafka.api import ApiKey
from gnomon.wire.kafka.errors import ErrorCode
from gnomon.wire.kafka.fetch import FetchPartition, FetchRequest, fetch_offset_at
from gnomon.wire.kafka.frame import AFTER_CORRELATION_ID, CORRELATION_ID_AT, RequestHeader

_OFFSET = Struct(">q")


class FetchRoutes:
    """Finds the partitions that fetches of one broker read, and makes the routes to them."""

    def __init__(
        self, topics: Topics, routes: Routes, placement: Placement, access: Access[ApiKey], polls: Polls
    ) -> None:
        self.routes = routes
        self.lease_lives = placement.lease_lives
        self.authorizer = access.authorizer
        self.polls = polls
        self._topics = topics
        self._access = access

    def partition(self, exchange: Exchange, ref: str | bytes, index: int) -> Readable:
        """A partition that the session of an exchange may read.

        Raises:
            KafkaError: the session may not, no topic has the id, or as `Routes.to_read`.
        """
        name = ref if isinstance(ref, str) else self._topics.find(ref).name
        self._access.check(ApiKey.FETCH, exchange.session(), Operation.READ, topic_resource(name))
        return self.routes.to_read(ref, index)

    def route(self, exchange: Exchange, frame: memoryview, request: FetchRequest, bytes_max: int) -> FetchRoute | None:
        """The route of requests like this one; None if the request has a session, or is of a kind without routes."""
        if request.session_epoch != FINAL_EPOCH or request.session_id != 0:
            return None
        offset_at = fetch_offset_at(frame, request, exchange.api_version)
        if offset_at is None:
            return None
        topic, (spec,) = request.topics[0]
        try:
            partition = self.partition(exchange, topic, spec.partition)
        except KafkaError:
            return None
        header = RequestHeader(exchange.api_key, exchange.api_version, 0, exchange.client_id, 0)
        return FetchRoute(self, header, bytes(frame), offset_at, request, partition, bytes_max)


class FetchRoute:
    """`exchange.Shortcut` to one partition."""

    def __init__(
        self,
        routes: FetchRoutes,
        header: RequestHeader,
        frame: bytes,
        offset_at: int,
        request: FetchRequest,
        partition: Readable,
        bytes_max: int,
    ) -> None:
        self.header = header
        self._routes = routes.routes
        self._routes_revision = routes.routes.revision
        self._authorizer = routes.authorizer
        self._authorized_at = routes.authorizer.revision
        self._lease_lives = routes.lease_lives
        self._polls = routes.polls
        self._size = len(frame)
        self._offset_at = offset_at
        self._offset_end = offset_at + _OFFSET.size
        self._head = frame[:CORRELATION_ID_AT]
        self._middle = frame[AFTER_CORRELATION_ID:offset_at]
        self._after = frame[self._offset_end :]
        self._request = request
        self._topic = request.topics[0][0]
        self._spec = request.topics[0][1][0]
        self._partition = partition
        self._bytes_max = bytes_max

    def fits(self, frame: memoryview) -> bool:
        """See `Shortcut.fits`."""
        if len(frame) != self._size:
            return False
        request = bytes(frame)  # comparing parts of bytes is faster than comparing views
        return (
            request[AFTER_CORRELATION_ID : self._offset_at] == self._middle
            and request[self._offset_end :] == self._after
            and request[:CORRELATION_ID_AT] == self._head
            and self._routes_revision == self._routes.revision
            and self._authorized_at == self._authorizer.revision
            and self._lease_lives()
        )

    def handle(self, exchange: Exchange, frame: memoryview) -> None:
        """See `Shortcut.handle`."""
        partition, leader_epoch, _, fetched_epoch, log_start, bytes_max = self._spec
        (offset,) = _OFFSET.unpack_from(frame, self._offset_at)
        spec = FetchPartition(partition, leader_epoch, offset, fetched_epoch, log_start, bytes_max)
        wanted = ((Followed(self._topic, spec), self._partition, ErrorCode.NONE),)
        Poll(self._polls, exchange, self._request, None, wanted, self._bytes_max).start()
