"""The records of topics in the metadata, as one broker reads and writes them.

Another broker may have changed a record a moment ago. So `current` returns only after this broker's image (its copy of
all topics) shows the record that was read, and `shown` after the image shows the result of the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.broker.errors import KafkaError, metadata_refusals
from gnomon.broker.storage import Storage
from gnomon.broker.topics.topics import Topics
from gnomon.log.topic import Topic, topic_key
from gnomon.metadata.client import Compare, Operation, TxnOutcome
from gnomon.runtime.logs import Logger


class TopicRecords:
    """Reads and writes the records of topics for one broker."""

    def __init__(self, storage: Storage, topics: Topics, log: Logger) -> None:
        self._storage = storage
        self._topics = topics
        self._log = log

    async def current(self, name: str) -> Topic | None:
        """A topic, read from the metadata service.

        Returns:
            The topic, None if it does not exist; the image shows the same by then.

        Raises:
            MetadataUnavailable: the metadata cannot be read now.
        """
        image = self._topics.image
        before = image.get(name)
        item = await self._storage.metadata.get(topic_key(name))
        if item is not None:
            await self._topics.reached(item.mod_revision)
        elif before is not None:
            while (shown := image.get(name)) is not None and shown.id == before.id:
                await self._topics.follower.moved()
        return image.get(name)

    async def find(self, name: str) -> Topic | None:
        """A topic of the image; a topic that is missing there is looked up in the metadata service.

        Raises:
            MetadataUnavailable: the image does not show it, and the metadata cannot be read now.
        """
        return self._topics.image.get(name) or await self.current(name)

    async def write(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnOutcome:
        """Executes a transaction that changes a topic or the keys that belong to it.

        Raises:
            KafkaError: the metadata service refused it.
        """
        try:
            with metadata_refusals():
                return await self._storage.metadata.txn(compares, then, otherwise)
        except KafkaError as error:
            self._log.warning("topic_not_changed", reason=error.text)
            raise

    async def shown(self, result: TxnOutcome) -> None:
        """Waits until the image shows the result of a transaction."""
        await self._topics.reached(result.revision)
