"""The replicator of one partition of one shadow: its outbox, the effects of acks on the outbox, and its rates."""

from __future__ import annotations

from gnomon.broker.replication.outbox import Outbox
from gnomon.broker.replication.protocol import Nack, NackReason
from gnomon.broker.replication.sender import ReplicationSender
from gnomon.broker.replication.stats import ReplicationStats
from gnomon.log.topic import Topic

SMOOTHING = 0.5
"""The weight of the last second in a rate."""
RETRY_SECONDS = 0.2
"""The time until entries are sent again to a broker that does not lead the shadow yet, or not any more."""
IDLE_SECONDS = 0.5
"""The time for which a shadow without readers gets ids only."""


class Replicator:
    """One partition of one shadow, on the broker that leads the partition of its source."""

    def __init__(self, shadow: Topic, index: int, entries_max: int) -> None:
        self.shadow = shadow
        self.index = index
        self.outbox = Outbox(entries_max)
        self.sender: ReplicationSender | None = None
        self.started = False
        """Whether the outbox has its cursor."""
        self.idle_until = float("-inf")
        """The monotonic second until which the shadow has no readers, and ids are enough."""
        self.retry_at = float("-inf")
        """The monotonic second before which nothing is sent."""
        self.refused = 0
        self._rates = (0.0, 0.0, 0.0)
        self._sampled: tuple[float, int, int, int] | None = None

    def can_send(self, now: float) -> bool:
        """Whether there is something to send, and a sender with room for it."""
        sender = self.sender
        return (
            self.started
            and sender is not None
            and self.outbox.unsent
            and now >= self.retry_at
            and sender.room_bytes > 0
        )

    def lost(self) -> None:
        """The connection is lost, or the shadow has moved: unacknowledged entries are sent again."""
        self.outbox.lost()
        self.idle_until = float("-inf")

    def acked(self, frame: int, nack: Nack | None, now: float) -> None:
        """The shadow's broker received the frames up to this one; a nack has the reason why entries were not taken."""
        reason = None if nack is None else nack.reason
        if reason is NackReason.NOT_LEADER:
            self.lost()
            self.retry_at = now + RETRY_SECONDS
            return
        self.idle_until = now + IDLE_SECONDS if reason is NackReason.NO_READER else float("-inf")
        if reason is NackReason.REFUSED:
            self.refused += 1
        self.outbox.acked(frame)

    def sample(self, now: float) -> None:
        """Updates the rates; called once in SAMPLE_SECONDS."""
        outbox = self.outbox
        counts = (now, outbox.acked_entries, outbox.acked_records, outbox.acked_bytes)
        if self._sampled is not None and now > self._sampled[0]:
            past = now - self._sampled[0]
            fresh = ((counts[at] - self._sampled[at]) / past for at in (1, 2, 3))
            entries, records, size = (
                before + SMOOTHING * (rate - before) for before, rate in zip(self._rates, fresh, strict=True)
            )
            self._rates = (entries, records, size)
        self._sampled = counts

    def stats(self, now: float) -> ReplicationStats:
        """The statistics at this monotonic second."""
        entries, size_bytes, since = self.outbox.backlog()
        cursor = self.outbox.cursor
        return ReplicationStats(
            connected=self.sender is not None and self.sender.connected,
            backlog_entries=entries,
            backlog_bytes=size_bytes,
            backlog_seconds=0.0 if since is None else max(0.0, now - since),
            entries_per_second=self._rates[0],
            records_per_second=self._rates[1],
            bytes_per_second=self._rates[2],
            last_segment=None if cursor is None else cursor.segment,
            last_entry=None if cursor is None else cursor.entry - 1,
            told_entries=self.outbox.acked_entries,
            resets=self.outbox.resets,
            refused=self.refused,
        )
