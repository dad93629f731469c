"""Names and limits of the native protocol, which clients and brokers share. Pure."""

from __future__ import annotations

from typing import Final

from gnomon.wire.rpc import HeadLimit, HeadLimits

SERVICE: Final = "broker"
"""The name of every broker's native service: a client does not know the ids of brokers."""
MOVED: Final = "moved"
"""Notice to consumers: subscribe again, at the leader of the partition."""
MISSED: Final = "missed"
"""Notice to consumers: records were removed before the subscription acknowledged them; two offsets follow."""
SUBSCRIBE_MAX: Final = 1000
"""Subscriptions in one call."""
GROUPS_MAX: Final = 4_000
"""Groups of numbers in one call that acknowledges records or grants permits."""
NUMBER_MAX: Final = 2**62
"""Every number in a call is below this, so that the sum of two fits into 64 bits."""
_LONG: Final = HeadLimit(2 << 20, 25_000)
HEADS: Final = HeadLimits(
    {
        "subscribe": HeadLimit(items_max=6_000),
        "flow": _LONG,
        "ack": _LONG,
        "ack_up_to": _LONG,
        "nack": _LONG,
        "replicate": _LONG,
        "table_write": HeadLimit(2 << 20, 10_000),
    }
)
"""GROUPS_MAX groups have up to 20,000 items; frames of replication have entries."""
PLANNED_PARTITIONS_MAX: Final = 1_000
"""Partitions in one call for a read plan."""
PLANNED_SEGMENTS_MAX: Final = 10_000
"""Segments in one answer to such a call; the others are asked for with a higher first offset."""
WRITE_BYTES_MAX: Final = 16 << 20
"""The largest batch in one call that writes."""
SCAN_ENTRIES_MAX: Final = 10_000
"""Entries in one answer of a scan."""
SCAN_BYTES_MAX: Final = 1 << 20
"""An answer of a scan ends after this many bytes of keys and values; it has at least one entry."""
OUTSTANDING_MAX: Final = 1_000
"""Numbered operations of one client on a partition, from the lowest one without an answer on."""
TEXT_CHARACTERS_MAX: Final = 1_024
"""Every name in a call is no longer."""
