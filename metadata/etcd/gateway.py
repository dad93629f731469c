"""Calls and streams over the HTTP/JSON gateways of the members of one etcd cluster, with httpx2.

1. A request that must not act twice is repeated only if the attempt before could not connect.
2. Any other request is retried, at one endpoint after the other, until `call_seconds` have passed.
3. An answer with a lower revision of the store than an earlier answer had is an error: that etcd was wiped or restored,
   or is another one.
4. Every request requires that the member has a leader: a member that is cut off from its cluster then answers with an
   error, instead of not at all.
"""

from __future__ import annotations

import json
import math
import socket  # noqa: TID251 - names of socket options only
from collections.abc import Sequence

import trio

from gnomon.metadata.client import InvalidRequest, MetadataUnavailable, Revision
from gnomon.metadata.etcd.json import Json, error_of, revision_of
from gnomon.runtime.backoff import Backoff
from gnomon.runtime.world import World

try:
    import httpx2
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "metadata in etcd needs the package httpx2, which is not installed: pip install 'gnomon[etcd]'", name="httpx2"
    ) from error

LOST = (httpx2.RequestError, httpx2.StreamError, trio.TooSlowError)
"""Failures of a request that may have been executed all the same."""
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout)

_HEADERS = {"Content-Type": "application/json", "Grpc-Metadata-hasleader": "true"}
_TRIES_PER_CALL = 3
_PAUSE = Backoff(0.05, 1.0)
# Thousands of claims share these connections; each stream has a connection of its own.
_CONNECTIONS_MAX = 16
# A stream whose connection was silently dropped in the network (no reset, no event) ends by the kernel's own probes.
_PROBES = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    # macOS lacks the first of them.
    *((socket.IPPROTO_TCP, getattr(socket, name), count) for name, count in _PROBES.items() if hasattr(socket, name)),
)


class RevisionWentBack(MetadataUnavailable):
    """The etcd has lost data: its revision is lower than before."""


class Gateway:
    """The endpoints of one etcd cluster, of which one is preferred until it fails."""

    def __init__(self, world: World, endpoints: Sequence[str], *, call_seconds: float) -> None:
        """Connects on first use.

        Raises:
            InvalidRequest: no endpoints, or one that is not a plain HTTP address.
        """
        self.clock = world.clock
        self._random = world.random("etcd")
        self._urls = [_url(endpoint) for endpoint in endpoints]
        if not self._urls:
            raise InvalidRequest("no etcd endpoint is named: give at least one host:port")
        self._favourite = 0
        self._call_seconds = call_seconds
        self.try_seconds = call_seconds / _TRIES_PER_CALL
        """Time for an attempt that may be repeated, so that a silent endpoint leaves time for another."""
        self._revision = Revision(0)
        self._closed = False
        self._calls = _http_client(_CONNECTIONS_MAX, self.try_seconds)
        self._streams = _http_client(None, self.try_seconds)

    @property
    def favourite(self) -> str:
        """The URL of the endpoint for the next request."""
        return self._urls[self._favourite]

    def avoid(self, url: str) -> None:
        """Prefers another endpoint for the next request, if there is another."""
        if self.favourite == url:
            self._favourite = (self._favourite + 1) % len(self._urls)

    async def pause(self, failures: int) -> None:
        """Waits before another attempt, longer after more failures."""
        await self.clock.sleep(_PAUSE.seconds(failures + 1) * self._random.uniform(0.5, 1.0))

    async def close(self) -> None:
        """Closes the connections; later requests end with MetadataUnavailable. Idempotent."""
        self._closed = True
        for client in (self._calls, self._streams):
            await client.aclose()

    def check_open(self) -> None:
        """Raises MetadataUnavailable after `close`."""
        if self._closed:
            raise MetadataUnavailable("the connection to etcd is closed: this node is stopping")

    async def call(self, path: str, body: Json, *, once: bool = False) -> Json:
        """The answer of the first endpoint that answers (invariants 1 and 2).

        Args:
            once: the request must not act twice.

        Raises:
            MetadataUnavailable: no endpoint answered in time; whether the request took effect is unknown.
            MetadataError: etcd refused the request.
        """
        content = json.dumps(body)
        failure, failures = f"{self.favourite} is silent for {self._call_seconds} s", 0
        with trio.move_on_after(self._call_seconds):
            while True:
                self.check_open()
                url = self.favourite
                try:
                    with trio.fail_after(math.inf if once else self.try_seconds):
                        return await self._post(url, path, content)
                except (*LOST, MetadataUnavailable) as error:
                    if once and isinstance(error, MetadataUnavailable):
                        raise
                    failure = f"{url}: {error or type(error).__name__}"
                    if once and not isinstance(error, _NOT_SENT):
                        break
                self.avoid(url)
                await self.pause(failures)
                failures += 1
        raise MetadataUnavailable(
            f"no answer from etcd, whether a write took effect is unknown: {failure}; is etcd running, and reachable?"
        )

    async def store_call(self, path: str, body: Json, *, once: bool = False) -> Json:
        """A `call` whose answer contains the store's revision at that time (invariant 3)."""
        before = self._revision
        return self._checked(await self.call(path, body, once=once), before)

    async def probe(self, url: str, question: Json) -> None:
        """Checks that this endpoint serves the known store and has a leader.

        Raises:
            RevisionWentBack: it serves another one.
            Exception: of `LOST` or MetadataError: it does not serve.
        """
        before = self._revision
        with trio.fail_after(self.try_seconds):
            self._checked(await self._post(url, "kv/range", json.dumps(question)), before)

    async def stream(self, url: str, path: str, body: Json) -> Stream:
        """Opens a stream of messages at one endpoint; does not wait for its first message.

        Raises:
            Exception: of `LOST` or MetadataError.
        """
        request = self._streams.build_request("POST", f"{url}/v3/{path}", content=json.dumps(body))
        with trio.fail_after(self.try_seconds):
            return Stream(url, await self._streams.send(request, stream=True))

    async def _post(self, url: str, path: str, content: str) -> Json:
        response = await self._calls.post(f"{url}/v3/{path}", content=content)
        return _parsed(response.content, url)

    def _checked(self, answer: Json, before: Revision) -> Json:
        """Checks an answer to a request made when the store's revision was at least `before`."""
        revision = revision_of(answer)
        if revision < before:
            raise RevisionWentBack(
                f"etcd went back from revision {before} to {revision}: it lost its data, was restored, or the endpoints"
                " are of different clusters; stop the nodes that use it and find out which"
            )
        self._revision = max(self._revision, revision)
        return answer


class Stream:
    """The messages of one streaming answer, one per line."""

    def __init__(self, url: str, response: httpx2.Response) -> None:
        self.url = url
        self._response = response
        self._chunks = response.aiter_raw()
        self._buffer = bytearray()

    async def next(self) -> Json:
        """The next message. A cancelled call breaks the stream.

        Raises:
            Exception: of `LOST`, or MetadataError if etcd sent an error.
        """
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            chunk = await anext(self._chunks, None)
            if chunk is None:
                raise httpx2.RemoteProtocolError("etcd ended the stream")
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return _parsed(line, self.url)

    async def close(self) -> None:
        """Closes the connection. Idempotent."""
        await self._chunks.aclose()
        await self._response.aclose()


def _http_client(connections_max: int | None, connect_seconds: float) -> httpx2.AsyncClient:
    transport = httpx2.AsyncHTTPTransport(
        verify=False,  # plain HTTP: loading the CA certificates would cost 20 ms
        trust_env=False,
        limits=httpx2.Limits(max_connections=connections_max, keepalive_expiry=60.0),
        socket_options=_SOCKET_OPTIONS,
    )
    timeout = httpx2.Timeout(None, connect=connect_seconds)
    return httpx2.AsyncClient(transport=transport, timeout=timeout, headers=_HEADERS, trust_env=False)


def _url(endpoint: str) -> str:
    address = endpoint.removeprefix("http://").rstrip("/")
    host, colon, port = address.rpartition(":")
    if "/" in address or not (host and colon and port.isdigit()):
        raise InvalidRequest(f"etcd endpoint {endpoint!r} is refused: give host:port or http://host:port (no TLS)")
    return f"http://{address}"


def _parsed(content: bytes, url: str) -> Json:
    """The answer, or raises its error; each answer of etcd has a header, with the revision if it is known."""
    try:
        answer = json.loads(content)
        error = answer.get("error")
        if error is None and "code" not in answer:
            result: Json = answer.get("result", answer)
            int(result["header"].get("revision", 0))
            return result
    except (ValueError, LookupError, TypeError, AttributeError):
        raise MetadataUnavailable(f"the server at {url} is no JSON gateway of etcd v3: {content[:80]!r}") from None
    raise error_of(error if isinstance(error, dict) else answer, url)
