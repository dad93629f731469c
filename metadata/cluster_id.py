"""The id of a cluster: 128 random bits as text, stored in the metadata by the first process that finds none there."""

from __future__ import annotations

import base64
import uuid
from typing import Final

from gnomon.metadata.client import Compare, Metadata, MetadataFull, MetadataUnavailable, Put
from gnomon.runtime.world import RandomStream

CLUSTER_KEY: Final = "cluster"


async def cluster_id(metadata: Metadata, stream: RandomStream) -> str:
    """Reads the cluster's id, in the form that Kafka's clients know; one metadata read.

    Raises:
        MetadataUnavailable: it could not be read.
        MetadataFull: there is none, and no space for one.
    """
    while (found := await metadata.get(CLUSTER_KEY)) is None:
        fresh = uuid.UUID(int=stream.getrandbits(128), version=4)
        text = base64.urlsafe_b64encode(fresh.bytes).rstrip(b"=")
        try:
            await metadata.txn([Compare.absent(CLUSTER_KEY)], [Put(CLUSTER_KEY, text)])
        except MetadataFull:
            raise
        except MetadataUnavailable:
            continue  # the next read shows the outcome
    return found.value.decode()
