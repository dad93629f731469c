"""Errors of the native protocol, which clients and brokers share.

After a `Retriable` error the same call may succeed later, or at another broker: the client retries it by itself.
`BrokerUnreachable`, `BrokerFailed`, `ConsumerClosed`, `WriterClosed`, `OutcomeUnknown`, `RecordsMissed`,
`CompareFailed`, `CrossPartition`, `TableNotEmpty` and `ImportIncomplete` are made by clients, all others by brokers.
"""

from __future__ import annotations

from typing import Any, Final

from gnomon.log.sn import SN
from gnomon.log.tables.table_entry import TableEntry
from gnomon.runtime.rpc.errors import ErrorTable
from gnomon.runtime.world import Unreachable


class NativeError(Exception):
    """A call of the native client failed; the text says why and what to do."""


class BrokerUnreachable(NativeError, Unreachable):
    """No broker answered for some seconds; the text has the reason for each address.

    Nothing listens there, the host has no address, a program with another protocol answers, or none answers. If the
    connection was lost during the call, the effect of the call is unknown.
    """


class BrokerFailed(NativeError):
    """The broker answered with an error that this client does not know, which may be a defect; the text is its own."""


class Retriable(NativeError):
    """The call may succeed later, or at another broker."""


class NotLeader(Retriable):
    """Another broker leads the partition: look the leader up again."""


class NotTaken(Retriable):
    """The broker has not taken the call, which had no effect."""


class Unavailable(Retriable):
    """The partition or the metadata cannot be used at the moment."""


class NoSuchTopic(NativeError):
    """No topic has this name, or the topic has no such partition."""


class NoSuchSubscription(NativeError):
    """The partition has no subscription of this name."""


class SubscriptionTaken(NativeError):
    """Other consumers of the subscription rule this call out."""


class NotAuthorized(NativeError):
    """The broker's authorizer does not allow the operation; the text names it and the resource."""


class InvalidCall(NativeError):
    """The call is not valid; the text says what would be."""


class ConsumerClosed(NativeError):
    """The consumer or its client was closed."""


class RecordsMissed(NativeError):
    """Records of a partition were removed before the subscription acknowledged them; it continues after them.

    Somebody deleted them (DeleteRecords, truncate), or the topic's settings did: a backlog quota with drop-oldest, or
    `gnomon.retention.hold=none`. All of them lie in [first, end). The subscription was at `first` or later.
    """

    def __init__(self, topic: str, partition: int, subscription: str, first: int, end: int) -> None:
        super().__init__(
            f"subscription {subscription!r} has missed records of partition {partition} of topic '{topic}' between"
            f" offsets {first} and {end}: they were removed before it acknowledged them; it continues at {end}"
        )
        self.topic = topic
        self.partition = partition
        self.subscription = subscription
        self.first = first
        self.end = end


class CasWriteException(NativeError):
    """The log did not end where the writer expected it to: nothing was written."""

    code = 525

    def __init__(self, stored: list[Any], text: str) -> None:
        """The error with its fields as they are sent; `stored` is an encoded SN."""
        super().__init__(text)
        self.current = SN.decode(stored)
        """The last record of the partition when the condition was judged; a reader of the topic finds it."""
        self.stored = stored
        self.text = text


class TransactionOutOfOrder(NativeError):
    """The transaction id is lower than the last one of the partition: nothing was written."""

    code = 513

    def __init__(self, stored: list[Any], text: str) -> None:
        """See `CasWriteException`."""
        super().__init__(text)
        self.current = SN.decode(stored)
        """The last record of the partition, with the last transaction id."""
        self.stored = stored
        self.text = text


class TokenMismatch(NativeError):
    """The partition has another fencing token: nothing was written, since another writer has fenced it."""

    def __init__(self, current: bytes, text: str) -> None:
        super().__init__(text)
        self.current = current
        """The fencing token of the partition, empty for none."""
        self.text = text


class InvalidRecords(NativeError):
    """The broker does not take the records as they are: nothing was written; the text says why."""


class TooLarge(InvalidRecords):
    """The records are larger than the topic takes (`max.message.bytes`): nothing was written."""


class NotATable(NativeError):
    """The topic is no table: it was not created with `gnomon.view=kv`."""


class CompareFailed(NativeError):
    """The key does not have the expected value or revision: nothing was written."""

    def __init__(self, current: TableEntry | None, text: str) -> None:
        super().__init__(text)
        self.current = current
        """The entry of the key when the condition was judged; None if it was absent."""


class Compacted(NativeError):
    """A watch from a revision that the log has no more: read the present values, and watch from there."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the log begins at revision {first}: earlier changes are not there any more")
        self.first = first
        """The first revision that can be watched."""


class CrossPartition(NativeError):
    """A transaction has keys of several partitions: only keys of one partition are written together."""


class TableNotEmpty(NativeError):
    """An export is imported only into a table without keys: nothing was written."""

    def __init__(self, topic: str, keys: int) -> None:
        super().__init__(
            f"table '{topic}' has {keys} keys: an export is imported into an empty table, so create another one"
        )
        self.keys = keys
        """The number of keys that the table has."""


class ImportIncomplete(NativeError):
    """The table has a part of the file that was imported, or other entries than the file: delete the topic."""


class BatchEarly(NativeError):
    """A numbered batch came before one that is missing in the log: nothing was written, the client sends it again."""


class OutcomeUnknown(NativeError):
    """The records may have been written, now or later; a reader, or the next SN, shows it."""


class WriterClosed(NativeError):
    """The writer or its client was closed."""


ERRORS: Final = ErrorTable(
    {
        NotLeader: (),
        NotTaken: (),
        Unavailable: (),
        NoSuchTopic: (),
        NoSuchSubscription: (),
        SubscriptionTaken: (),
        NotAuthorized: (),
        InvalidCall: (),
        CasWriteException: ("stored", "text"),
        TransactionOutOfOrder: ("stored", "text"),
        TokenMismatch: ("current", "text"),
        InvalidRecords: (),
        TooLarge: (),
        NotATable: (),
        Compacted: ("first",),
        OutcomeUnknown: (),
        BatchEarly: (),
    }
)


def decode_error(name: str, fields: list[Any], text: str) -> NativeError:
    """The error that a broker has encoded with ERRORS, or BrokerFailed with its text."""
    error = ERRORS.decode(name, fields, text)
    return error if isinstance(error, NativeError) else BrokerFailed(str(error))
