"""gnomon: a Kafka-compatible log broker on ledgers, in Python on Trio.

The names here are those that programs use; they are imported when they are first used. Brokers for tests are in
`gnomon.testing`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.bookie.blocking_ledgers import BlockingLedger as BlockingLedger
    from gnomon.bookie.blocking_ledgers import BlockingLedgers as BlockingLedgers
    from gnomon.bookie.blocking_ledgers import connect_ledgers_blocking as connect_ledgers_blocking
    from gnomon.bookie.errors import LedgerError as LedgerError
    from gnomon.bookie.handle import Ledger as Ledger
    from gnomon.bookie.ids import EntryId as EntryId
    from gnomon.bookie.ledger import OpenMode as OpenMode
    from gnomon.bookie.ledgers import Ledgers as Ledgers
    from gnomon.bookie.ledgers import connect_ledgers as connect_ledgers
    from gnomon.bookie.ledgers import follow as follow
    from gnomon.bookie.record import DigestType as DigestType
    from gnomon.bookie.record import Quorum as Quorum
    from gnomon.broker.native.blocking import BlockingClient as BlockingClient
    from gnomon.broker.native.blocking import BlockingConsumer as BlockingConsumer
    from gnomon.broker.native.blocking import connect_blocking as connect_blocking
    from gnomon.broker.native.client import NativeClient as NativeClient
    from gnomon.broker.native.client import connect as connect
    from gnomon.broker.native.consumer import Consumer as Consumer
    from gnomon.broker.native.errors import NativeError as NativeError
    from gnomon.broker.native.errors import RecordsMissed as RecordsMissed
    from gnomon.broker.native.message import Message as Message
    from gnomon.broker.subscriptions.dlsn import Dlsn as Dlsn

__version__ = "0.1.0"

_MODULES = {
    "BlockingClient": "broker.native.blocking",
    "BlockingConsumer": "broker.native.blocking",
    "BlockingLedger": "bookie.blocking_ledgers",
    "BlockingLedgers": "bookie.blocking_ledgers",
    "Consumer": "broker.native.consumer",
    "DigestType": "bookie.record",
    "Dlsn": "broker.subscriptions.dlsn",
    "EntryId": "bookie.ids",
    "Ledger": "bookie.handle",
    "LedgerError": "bookie.errors",
    "Ledgers": "bookie.ledgers",
    "Message": "broker.native.message",
    "NativeClient": "broker.native.client",
    "NativeError": "broker.native.errors",
    "OpenMode": "bookie.ledger",
    "Quorum": "bookie.record",
    "RecordsMissed": "broker.native.errors",
    "connect": "broker.native.client",
    "connect_blocking": "broker.native.blocking",
    "connect_ledgers": "bookie.ledgers",
    "connect_ledgers_blocking": "bookie.blocking_ledgers",
    "follow": "bookie.ledgers",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
