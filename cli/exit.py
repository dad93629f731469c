"""Exit codes, and the one table that maps an error to the exit code of a command.

1. Only a command that did everything that it was asked to do ends with 0, except that a command also ends with 0 when
   the reader of its standard output is gone.
2. An error that an operator can act on is one line: what happened, why, what to do. Anything else is a bug and keeps
   its traceback.
"""

from __future__ import annotations

from enum import IntEnum

from gnomon.bookie import errors as ledgers
from gnomon.metadata.client import MetadataError, MetadataFull, MetadataUnavailable
from gnomon.runtime.settings.loaded_settings import SettingsError
from gnomon.runtime.world import DirectoryTaken, Unreachable, WorldError
from gnomon.wire.kafka.errors import ErrorCode


class Exit(IntEnum):
    """The meaning of a command's exit code."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    DENIED = 4
    CONFLICT = 5
    """Missing, or there already, or in use."""


class Failure(Exception):
    """Ends the command with `code`; the text is one line."""

    def __init__(self, text: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(" ".join(text.split()))
        self.code = code


class KafkaFailure(Failure):
    """The broker, or librdkafka, answered with an error."""

    def __init__(self, text: str, kafka_code: int) -> None:
        super().__init__(text, KAFKA_ERRORS.get(kafka_code, Exit.FAILED))
        self.kafka_code = kafka_code


ERRORS: tuple[tuple[type[BaseException], Exit], ...] = (
    (DirectoryTaken, Exit.CONFLICT),
    (Unreachable, Exit.UNREACHABLE),
    (WorldError, Exit.FAILED),
    (SettingsError, Exit.USAGE),
    (ledgers.UnauthorizedAccess, Exit.DENIED),
    (ledgers.NoSuchLedger, Exit.CONFLICT),
    (ledgers.LedgerExists, Exit.CONFLICT),
    (ledgers.LedgerSealed, Exit.CONFLICT),
    (ledgers.LedgerFenced, Exit.CONFLICT),
    (ledgers.NoSuchEntry, Exit.CONFLICT),
    (ledgers.EntryShrunk, Exit.CONFLICT),
    (ledgers.EntryNotConfirmed, Exit.CONFLICT),
    (ledgers.NotEnoughBookies, Exit.UNREACHABLE),
    (ledgers.LedgerError, Exit.FAILED),
    (MetadataFull, Exit.FAILED),
    (MetadataUnavailable, Exit.UNREACHABLE),
    (MetadataError, Exit.FAILED),
    (PermissionError, Exit.DENIED),
    (OSError, Exit.FAILED),
)
"""The first matching line decides."""

LEADERS_CHANGE = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Answers while a partition or group changes from one leader to the next."""

KAFKA_ERRORS: dict[int, Exit] = {
    ErrorCode.INVALID_CONFIG: Exit.USAGE,
    ErrorCode.INVALID_PARTITIONS: Exit.USAGE,
    ErrorCode.INVALID_REPLICATION_FACTOR: Exit.USAGE,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: Exit.USAGE,
    ErrorCode.INVALID_GROUP_ID: Exit.USAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Exit.CONFLICT,
    ErrorCode.UNKNOWN_TOPIC_ID: Exit.CONFLICT,
    ErrorCode.TOPIC_ALREADY_EXISTS: Exit.CONFLICT,
    # The name is too similar to another, the source is missing, or the topic is internal; `options.TOPIC` refuses bad
    # names.
    ErrorCode.INVALID_TOPIC_EXCEPTION: Exit.CONFLICT,
    ErrorCode.GROUP_ID_NOT_FOUND: Exit.CONFLICT,
    ErrorCode.NON_EMPTY_GROUP: Exit.CONFLICT,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: Exit.CONFLICT,
    ErrorCode.UNKNOWN_MEMBER_ID: Exit.CONFLICT,
    ErrorCode.OFFSET_OUT_OF_RANGE: Exit.CONFLICT,
    ErrorCode.RESOURCE_NOT_FOUND: Exit.CONFLICT,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Exit.DENIED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Exit.DENIED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Exit.DENIED,
    ErrorCode.SASL_AUTHENTICATION_FAILED: Exit.DENIED,
    ErrorCode.REQUEST_TIMED_OUT: Exit.UNREACHABLE,
    ErrorCode.BROKER_NOT_AVAILABLE: Exit.UNREACHABLE,
    **dict.fromkeys(LEADERS_CHANGE, Exit.UNREACHABLE),
    # librdkafka's own codes, below zero.
    -140: Exit.CONFLICT,  # no offset to begin at
    -169: Exit.DENIED,  # authentication
    -185: Exit.UNREACHABLE,  # timed out
    -187: Exit.UNREACHABLE,  # all brokers down
    -188: Exit.CONFLICT,  # unknown topic
    -190: Exit.CONFLICT,  # unknown partition
    -192: Exit.UNREACHABLE,  # message timed out
    -193: Exit.UNREACHABLE,  # resolve
    -195: Exit.UNREACHABLE,  # transport
}
"""By Kafka's error code; any other is FAILED."""


ADVICE: dict[int, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`gnomon topic list` shows all topics",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or change it with `gnomon topic alter`",
    ErrorCode.GROUP_ID_NOT_FOUND: "`gnomon group list` shows all groups",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first",
    # Also if the only broker cannot open the partition, for example on a full disk.
    **dict.fromkeys(LEADERS_CHANGE, "try again in a few seconds; if it stays so, see the log of its broker"),
    -140: "the partition holds none from there on; begin at `earliest`",
    -185: "check that this is a Kafka broker and not overloaded",
    -195: "check that this is the address of a Kafka broker",
}
"""Advice by Kafka's error code, for errors whose text from the broker contains none."""


LEDGER_ADVICE: dict[type[ledgers.LedgerError], str] = {
    ledgers.NoSuchLedger: "`gnomon ledger list` shows all, `gnomon ledger create` makes one",
    ledgers.LedgerSealed: "it takes no more entries; `gnomon ledger read` reads those it has",
    ledgers.EntryNotConfirmed: "`gnomon ledger tail` waits for more",
}
"""Advice that replaces the advice for programs in the error's text."""


def failure_of(error: BaseException) -> Failure | None:
    """The Failure that ends a command after `error`; None if that is a bug."""
    if isinstance(error, BaseExceptionGroup):
        failures = [failure_of(inner) for inner in error.exceptions]
        return None if None in failures else failures[0]
    if isinstance(error, Failure):
        return error
    for kind, code in ERRORS:
        if isinstance(error, kind):
            return Failure(_text(error), code)
    return None


def kafka_failure(what: str, code: int, text: str) -> KafkaFailure:
    """The Failure of a command whose attempt to `what` got an error from the broker."""
    advice = f": {ADVICE[code]}" if code in ADVICE else ""
    return KafkaFailure(f"cannot {what}: {text.removeprefix('Broker: ').rstrip('.')}{advice}", code)


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot use {error.filename}: {error.strerror}"
    if isinstance(error, ledgers.LedgerError) and type(error) in LEDGER_ADVICE:
        return f"{error.text}: {LEDGER_ADVICE[type(error)]}"
    return str(error)
