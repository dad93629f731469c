"""The headers by which the records of a batch give the terms of their write. Pure."""

from __future__ import annotations

from typing import Final

EXPECTED_OFFSET: Final = "gnomon.expected.offset"
"""The offset that this record must get, as decimal text (KIP-27)."""
TRANSACTION_ID: Final = "gnomon.transaction.id"
"""A number that never falls along the log, as decimal text."""
FENCING_TOKEN: Final = "gnomon.fencing.token"
"""The fencing token of the partition, 1 to TOKEN_BYTES_MAX bytes."""
TOKEN_BYTES_MAX: Final = 36
