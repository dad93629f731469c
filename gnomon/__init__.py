"""gnomon: a Kafka-compatible log broker on ledgers, in Python on Trio.

The names here are those that programs use; they are imported when they are first used. Brokers for tests are in
`gnomon.testing`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.bookie.ledgers.blocking_ledgers import BlockingLedger as BlockingLedger
    from gnomon.bookie.ledgers.blocking_ledgers import BlockingLedgers as BlockingLedgers
    from gnomon.bookie.ledgers.blocking_ledgers import connect_ledgers_blocking as connect_ledgers_blocking
    from gnomon.bookie.errors import LedgerError as LedgerError
    from gnomon.bookie.ledgers.ledger import Ledger as Ledger
    from gnomon.bookie.ids import EntryId as EntryId
    from gnomon.bookie.ledgers.catalog import OpenMode as OpenMode
    from gnomon.bookie.ledgers.ledgers import Ledgers as Ledgers
    from gnomon.bookie.ledgers.ledgers import connect_ledgers as connect_ledgers
    from gnomon.bookie.ledgers.ledgers import follow as follow
    from gnomon.bookie.record import DigestType as DigestType
    from gnomon.bookie.record import Quorum as Quorum
    from gnomon.client.blocking import BlockingClient as BlockingClient
    from gnomon.client.blocking import BlockingConsumer as BlockingConsumer
    from gnomon.client.blocking import connect_blocking as connect_blocking
    from gnomon.client.client import NativeClient as NativeClient
    from gnomon.client.client import connect as connect
    from gnomon.client.consumer import Consumer as Consumer
    from gnomon.client.writes.blocking_writer import BlockingWriter as BlockingWriter
    from gnomon.client.errors import BrokerFailed as BrokerFailed
    from gnomon.client.errors import BrokerUnreachable as BrokerUnreachable
    from gnomon.client.errors import CasWriteException as CasWriteException
    from gnomon.client.errors import ConsumerClosed as ConsumerClosed
    from gnomon.client.errors import InvalidCall as InvalidCall
    from gnomon.client.described_subscription import DescribedSubscription as DescribedSubscription
    from gnomon.client.described_subscription import ListedSubscription as ListedSubscription
    from gnomon.client.errors import NativeError as NativeError
    from gnomon.client.errors import NoSuchSubscription as NoSuchSubscription
    from gnomon.client.errors import NoSuchTopic as NoSuchTopic
    from gnomon.client.errors import NotAuthorized as NotAuthorized
    from gnomon.client.errors import OutcomeUnknown as OutcomeUnknown
    from gnomon.client.errors import RecordsMissed as RecordsMissed
    from gnomon.client.errors import InvalidRecords as InvalidRecords
    from gnomon.client.errors import SubscriptionTaken as SubscriptionTaken
    from gnomon.client.errors import TokenMismatch as TokenMismatch
    from gnomon.client.errors import TransactionOutOfOrder as TransactionOutOfOrder
    from gnomon.client.errors import Unavailable as Unavailable
    from gnomon.client.errors import WriterClosed as WriterClosed
    from gnomon.client.errors import Compacted as Compacted
    from gnomon.client.tables.table_watch import TableEvent as TableEvent
    from gnomon.client.tables.table_watch import TableWatch as TableWatch
    from gnomon.client.errors import CompareFailed as CompareFailed
    from gnomon.client.errors import CrossPartition as CrossPartition
    from gnomon.client.errors import ImportIncomplete as ImportIncomplete
    from gnomon.client.errors import NotATable as NotATable
    from gnomon.client.errors import TableNotEmpty as TableNotEmpty
    from gnomon.client.errors import TooLarge as TooLarge
    from gnomon.client.tables.blocking_table import BlockingTable as BlockingTable
    from gnomon.client.tables.listed_table import ListedTable as ListedTable
    from gnomon.client.tables.table import Table as Table
    from gnomon.client.tables.table_export import TableExport as TableExport
    from gnomon.client.tables.table_import import TableImport as TableImport
    from gnomon.log.tables.export_form import ExportDamaged as ExportDamaged
    from gnomon.log.tables.table_entry import Page as Page
    from gnomon.log.tables.table_entry import TableEntry as TableEntry
    from gnomon.log.tables.table_entry import TxnResult as TxnResult
    from gnomon.log.tables.operations import DeleteKey as DeleteKey
    from gnomon.log.tables.operations import GetKey as GetKey
    from gnomon.log.tables.operations import IncrementKey as IncrementKey
    from gnomon.log.tables.operations import PutKey as PutKey
    from gnomon.client.message import Message as Message
    from gnomon.client.subscriptions import Subscriptions as Subscriptions
    from gnomon.client.writes.end import End as End
    from gnomon.client.writes.client_write import PREVIOUS as PREVIOUS
    from gnomon.client.writes.client_write import WriteRecord as WriteRecord
    from gnomon.client.writes.writer import Writer as Writer
    from gnomon.log.dlsn import Dlsn as Dlsn
    from gnomon.log.partition_reader import PartitionReader as PartitionReader
    from gnomon.log.partition_reader import open_partition as open_partition
    from gnomon.log.sn import EMPTY as EMPTY
    from gnomon.log.sn import SN as SN

__version__ = "0.1.0"

_MODULES = {
    "BlockingTable": "client.tables.blocking_table",
    "Compacted": "client.errors",
    "TableEvent": "client.tables.table_watch",
    "TableWatch": "client.tables.table_watch",
    "CompareFailed": "client.errors",
    "CrossPartition": "client.errors",
    "ImportIncomplete": "client.errors",
    "NotATable": "client.errors",
    "TableNotEmpty": "client.errors",
    "TooLarge": "client.errors",
    "ListedTable": "client.tables.listed_table",
    "Table": "client.tables.table",
    "TableExport": "client.tables.table_export",
    "TableImport": "client.tables.table_import",
    "ExportDamaged": "log.tables.export_form",
    "Page": "log.tables.table_entry",
    "TableEntry": "log.tables.table_entry",
    "TxnResult": "log.tables.table_entry",
    "DeleteKey": "log.tables.operations",
    "GetKey": "log.tables.operations",
    "IncrementKey": "log.tables.operations",
    "PutKey": "log.tables.operations",
    "BlockingClient": "client.blocking",
    "BlockingConsumer": "client.blocking",
    "BlockingLedger": "bookie.ledgers.blocking_ledgers",
    "BlockingLedgers": "bookie.ledgers.blocking_ledgers",
    "BlockingWriter": "client.writes.blocking_writer",
    "BrokerFailed": "client.errors",
    "BrokerUnreachable": "client.errors",
    "CasWriteException": "client.errors",
    "Consumer": "client.consumer",
    "ConsumerClosed": "client.errors",
    "DescribedSubscription": "client.described_subscription",
    "DigestType": "bookie.record",
    "Dlsn": "log.dlsn",
    "EMPTY": "log.sn",
    "End": "client.writes.end",
    "EntryId": "bookie.ids",
    "InvalidCall": "client.errors",
    "Ledger": "bookie.ledgers.ledger",
    "LedgerError": "bookie.errors",
    "Ledgers": "bookie.ledgers.ledgers",
    "ListedSubscription": "client.described_subscription",
    "Message": "client.message",
    "NativeClient": "client.client",
    "NativeError": "client.errors",
    "NoSuchSubscription": "client.errors",
    "NoSuchTopic": "client.errors",
    "NotAuthorized": "client.errors",
    "OpenMode": "bookie.ledgers.catalog",
    "OutcomeUnknown": "client.errors",
    "PREVIOUS": "client.writes.client_write",
    "PartitionReader": "log.partition_reader",
    "Quorum": "bookie.record",
    "RecordsMissed": "client.errors",
    "InvalidRecords": "client.errors",
    "SN": "log.sn",
    "SubscriptionTaken": "client.errors",
    "TokenMismatch": "client.errors",
    "TransactionOutOfOrder": "client.errors",
    "Unavailable": "client.errors",
    "Subscriptions": "client.subscriptions",
    "WriteRecord": "client.writes.client_write",
    "Writer": "client.writes.writer",
    "WriterClosed": "client.errors",
    "connect": "client.client",
    "connect_blocking": "client.blocking",
    "connect_ledgers": "bookie.ledgers.ledgers",
    "connect_ledgers_blocking": "bookie.ledgers.blocking_ledgers",
    "follow": "bookie.ledgers.ledgers",
    "open_partition": "log.partition_reader",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
