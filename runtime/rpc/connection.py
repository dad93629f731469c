"""One end of a stream of RPC frames: handles received frames one by one, and sends those of a turn in one write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from gnomon.runtime.world import OUT_OF_MEMORY, Buffer, Connection, Network
from gnomon.wire.rpc import HeadLimits, MalformedRpc, RpcFrameReader, decode, encode

GATHER_BYTES_MAX = 1 << 20
"""When more bytes than this are collected, they are sent at once."""
COPY_BYTES_MAX = 32 << 10
"""Larger attachments that their owner may change are sent at once: a system call costs less than the copy."""


class RpcConnection(ABC):
    """A `StreamHandler`; `RpcServer` and `RpcClient` define the meaning of frames.

    A frame without memory for its handling ends the connection. Any other exception of `take` except MalformedRpc
    passes through and stops the node, as in every handler.
    """

    def __init__(
        self, transport: Connection, network: Network, frame_bytes_max: int, heads: HeadLimits | None = None
    ) -> None:
        """`heads` limits the frames of a client; a client trusts its server, whose events may be many."""
        self.transport = transport
        self.frame_bytes_max = frame_bytes_max
        self.gone = False
        """Nothing is received or sent any more."""
        self.bytes_received = 0
        self._network = network
        self._heads = heads
        self._frames = RpcFrameReader(frame_bytes_max, None if heads is None else heads.bytes_max)
        self._outgoing: list[Buffer] = []
        self._outgoing_bytes = 0
        self._flush_waits = False
        self._held = False
        self._working = False

    @abstractmethod
    def take(self, head: list[Any], attachment: memoryview, size: int) -> None:
        """Handles one frame of `size` bytes; the attachment is valid during the call.

        Raises:
            MalformedRpc: it is not allowed here.
        """

    @abstractmethod
    def malformed(self, reason: str) -> None:
        """The peer violated the protocol."""

    @abstractmethod
    def ended(self) -> None:
        """The stream is gone."""

    @abstractmethod
    def eased(self) -> None:
        """Frames were sent."""

    def turn_begins(self) -> None:  # noqa: B027 - a client needs none
        """Frames are handled from now on; a client, which trusts its server, handles all that it has."""

    def turn_is_over(self) -> bool:
        """Whether the frames after this one have to wait for the next turn."""
        return False

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the peer has not received yet."""
        return self._outgoing_bytes + self.transport.backlog_bytes

    # --- the stream ---------------------------------------------------------------------------------------------

    def receive_buffer(self) -> memoryview:
        """The buffer for the next bytes."""
        return self._frames.receive_buffer()

    def received(self, count: int) -> None:
        """Bytes have arrived."""
        self.bytes_received += count
        self._frames.received(count)
        self._work()

    def drained(self) -> None:
        """The peer has received everything."""
        self.eased()

    def closed(self) -> None:
        """The stream is gone, whichever side ended it."""
        self.gone = True
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._frames.discard()  # now, instead of when the collector finds stream and handler
        self.ended()

    def hold(self) -> None:
        """Reads no further frame until `release`."""
        self._held = True
        self.transport.pause_reading()

    def release(self) -> None:
        """Undoes `hold`."""
        self._held = False
        self.transport.resume_reading()
        self._work()

    @property
    def held(self) -> bool:
        """Whether reading is on hold."""
        return self._held

    def _work(self) -> None:
        if self._working:
            return
        self._working = True
        frames = self._frames
        next_frame, take, heads = frames.next_frame, self.take, self._heads
        self.turn_begins()
        try:
            while not self._held and not self.gone:
                frame = next_frame()
                if frame is None:
                    break
                head, attachment = decode(frame, heads)
                take(head, attachment, len(frame))
                if frames.buffered_bytes and self.turn_is_over():
                    self.hold()
        except (MalformedRpc, MemoryError) as error:
            self.malformed(str(error) or OUT_OF_MEMORY)
        finally:
            self._working = False

    # --- frames out ---------------------------------------------------------------------------------------------

    def post(self, head: list[Any], attachment: Buffer = b"") -> int:
        """Sends a frame at the end of the turn; returns its size in bytes."""
        return self.post_frame(encode(head, attachment))

    def post_frame(self, chunks: list[Buffer], at_once: bool = False) -> int:
        """Sends an encoded frame at the end of the turn, or at once; an attachment that may change is not kept."""
        size = len(chunks[0])
        if len(chunks) > 1:
            attachment = chunks[1]
            size += len(attachment)
            if not is_immutable(attachment):
                if len(attachment) > COPY_BYTES_MAX:
                    at_once = True
                else:
                    chunks[1] = bytes(attachment)
        if self.gone:
            return size
        self._outgoing += chunks
        self._outgoing_bytes += size
        if at_once or self._outgoing_bytes > GATHER_BYTES_MAX:
            self._send()
            if not self._held:
                return size
        if not self._flush_waits:
            self._flush_waits = True
            self._network.call_soon(self._flush)
        return size

    def close(self) -> None:
        """Sends the collected frames, then ends the stream; nothing that arrives is handled any more."""
        self._send()
        self.gone = True
        self.transport.close()

    def abort(self) -> None:
        """Ends the stream at once."""
        self.gone = True
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self.transport.abort()

    def _flush(self) -> None:
        self._flush_waits = False
        self._send()
        self.eased()

    def _send(self) -> None:
        if self._outgoing:
            outgoing, self._outgoing = self._outgoing, []
            self._outgoing_bytes = 0
            self.transport.write(outgoing)


def is_immutable(buffer: Buffer) -> bool:
    """Whether a buffer can be kept without a copy."""
    return type(buffer) is bytes or (type(buffer) is memoryview and type(buffer.obj) is bytes)
