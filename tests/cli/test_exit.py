from __future__ import annotations

import pytest

from gnomon.bookie.errors import (
    EntryNotConfirmed,
    LedgerError,
    LedgerFailed,
    NoSuchLedger,
    NotEnoughBookies,
    UnauthorizedAccess,
)
from gnomon.bookie.ids import EntryId, LedgerId
from gnomon.cli.exit import KAFKA_ERRORS, LEDGER_ADVICE, Exit, Failure, failure_of, kafka_failure
from gnomon.metadata.client import MetadataFull, MetadataUnavailable
from gnomon.runtime.settings.loaded_settings import SettingsError
from gnomon.runtime.world import AddressTaken, DirectoryTaken, DiskFull, Unreachable
from gnomon.wire.kafka.errors import ErrorCode


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DirectoryTaken("taken"), 5),
        (AddressTaken("in use"), 1),
        (DiskFull("full"), 1),
        (Unreachable("gone"), 3),
        (SettingsError("unknown"), 2),
        (UnauthorizedAccess("no"), 4),
        (NoSuchLedger("none"), 5),
        (LedgerFailed("failed", outcome_unknown=True), 1),
        (MetadataUnavailable("gone"), 3),
        (MetadataFull("full"), 1),
        (NotEnoughBookies("two"), 3),
        (PermissionError(13, "Permission denied", "/x"), 4),
        (Failure("so", Exit.CONFLICT), 5),
    ],
)
def test_every_error_that_an_operator_can_act_on_has_its_exit_code(error: Exception, code: int) -> None:
    failure = failure_of(error)
    assert failure is not None
    assert failure.code == code


def test_an_error_inside_exception_groups_keeps_its_exit_code() -> None:
    failure = failure_of(ExceptionGroup("outer", [ExceptionGroup("inner", [DirectoryTaken("taken")])]))
    assert failure is not None
    assert (failure.code, str(failure)) == (Exit.CONFLICT, "taken")


def test_a_bug_has_no_exit_code_even_beside_an_operational_error() -> None:
    assert failure_of(KeyError("x")) is None
    assert failure_of(ExceptionGroup("both", [DirectoryTaken("taken"), KeyError("x")])) is None


def test_the_text_of_a_failure_becomes_one_line() -> None:
    assert str(Failure("first\n  second")) == "first second"


@pytest.mark.parametrize("kind", LEDGER_ADVICE)
def test_a_ledger_error_carries_the_advice_of_the_command_line(kind: type[LedgerError]) -> None:
    error = EntryNotConfirmed(LedgerId(7), EntryId(2), EntryId(1)) if kind is EntryNotConfirmed else kind("so", "do")
    assert str(failure_of(error)) == f"{error.text}: {LEDGER_ADVICE[kind]}"
    assert str(error) != error.text


def test_the_table_names_librdkafkas_own_errors_by_their_numbers() -> None:
    from confluent_kafka import KafkaError

    own = {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._AUTHENTICATION,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._TRANSPORT,
    }
    assert {code for code in KAFKA_ERRORS if code < 0} == own


def test_a_kafka_error_names_the_failed_action_the_reason_and_the_advice() -> None:
    failure = kafka_failure("describe topic 'x'", 3, "Broker: Unknown topic or partition")
    assert failure.code is Exit.CONFLICT
    assert str(failure) == (
        "cannot describe topic 'x': Unknown topic or partition: `gnomon topic list` shows all topics"
    )


def test_an_error_of_a_leader_change_is_unreachable_and_advises_to_try_again() -> None:
    for code in (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ):
        failure = kafka_failure("look up the offsets of topic 'x'", code, "Broker: so")
        assert (failure.code, str(failure)) == (
            Exit.UNREACHABLE,
            "cannot look up the offsets of topic 'x': so: "
            "try again in a few seconds; if it stays so, see the log of its broker",
        )
