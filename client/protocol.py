"""Names and limits of the native protocol, which clients and brokers share. Pure."""

from __future__ import annotations

from typing import Final

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
