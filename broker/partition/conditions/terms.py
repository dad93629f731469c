"""The terms of an append: what the writer expects of the log, and what became of that. Pure.

1. Terms are judged when it is the append's turn, against what the log has given out so far (`PartitionLog.append`).
2. A refusal writes nothing, takes no sequence of the producer, and names the SN at the time of the judgement.
3. A refusal is given only once the record that it names is durable. If the terms may hold at another leader, the
   metadata service confirms first that this one still leads.
4. Tokens have no order, so a token that is refused may be that of the next leader's log. An expectation and a
   transaction id below those of the log can hold nowhere (`sn` invariant 2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gnomon.broker.partition.conditions.marks import BatchMarks
from gnomon.broker.partition.log_view import ViewOperation
from gnomon.log.sn import SN, Match, match


class LogEnd(NamedTuple):
    """The end of a log, as terms are judged by it."""

    sn: SN
    """The last record that was given out."""
    next_offset: int
    token: bytes
    """The fencing token, empty for none."""


class TermsRefused(Exception):
    """The terms of an append do not hold; nothing was appended."""

    def __init__(self, text: str, end: LogEnd, *, may_hold: bool) -> None:
        """A refusal; `may_hold` says whether the terms may hold at another leader, or later."""
        super().__init__(text)
        self.current = end.sn
        self.token = end.token
        self.may_hold = may_hold


class PositionRefused(TermsRefused):
    """The log does not end where the writer expects it to."""


class TransactionRefused(TermsRefused):
    """A transaction id is lower than the last one."""


class TokenRefused(TermsRefused):
    """The fencing token is not that of the partition."""


class Terms:
    """The terms of one append; `sn`, `end` or `refused` is set once it is decided."""

    __slots__ = (
        *("changes", "end", "expected", "looks", "marks", "new_token", "of_records", "operation", "refused"),
        *("sn", "token"),
    )

    def __init__(
        self,
        expected: SN | None = None,
        token: bytes | None = None,
        new_token: bytes | None = None,
        *,
        looks: bool = False,
        operation: ViewOperation | None = None,
        of_records: bool = False,
    ) -> None:
        """Terms that are not judged yet.

        Args:
            expected: the fields of the SN that have to match; None if any end of the log will do.
            token: the partition's fencing token must be this one; None if any will do.
            new_token: a fence instead of a batch: the token of the partition from then on, empty for none.
            looks: a question for the end of the log instead of a batch.
            operation: an operation on the partition's view instead of a batch, which it makes in its turn.
            of_records: the batch of a Kafka producer, whose only terms are in the headers of its records.
        """
        self.expected = expected
        self.token = token
        self.new_token = new_token
        self.looks = looks
        self.operation = operation
        self.of_records = of_records
        self.changes: Any = None
        """The effect of the batch on the partition's view; None as long as it was not computed."""
        self.end: LogEnd | None = None
        """The end of the log when it was the question's turn; all of it is durable when the question is answered."""
        self.marks: BatchMarks | None = None
        """The terms in the headers of the records; None as long as they were not searched."""
        self.sn: SN | None = None
        """The batch's last record; None for a refused batch, and for one that was in the log already."""
        self.refused: TermsRefused | None = None
        """Why the append was refused, if its terms are the reason."""

    @property
    def are_any(self) -> bool:
        """Whether there is anything to judge."""
        return self.expected is not None or self.token is not None or self.marks is not None

    def judge(self, end: LogEnd) -> None:
        """Compares the terms with the present end of the log.

        Raises:
            TermsRefused: the append must not be made.
        """
        marks = self.marks
        if self.token is not None and self.token != end.token:
            raise _token_refused(self.token, end)
        if marks is not None and marks.token is not None and marks.token != end.token:
            raise _token_refused(marks.token, end)
        if self.expected is not None:
            found = match(self.expected, end.sn)
            if found is not Match.HOLDS:
                text = f"the log does not end as expected ({self.expected}) but with {end.sn}"
                raise PositionRefused(text, end, may_hold=found is Match.AHEAD)
        if marks is not None:
            _judge_marks(marks, end)


def _judge_marks(marks: BatchMarks, end: LogEnd) -> None:
    wrong = [place for place in marks.offsets if place.offset - place.delta != end.next_offset]
    if wrong:
        place = wrong[0]
        text = (
            f"CAS_WRITE_EXCEPTION 525 expected={place.offset} current={end.next_offset}: record {place.delta} of the"
            f" batch would get offset {end.next_offset + place.delta}"
        )
        ahead = all(place.offset - place.delta > end.next_offset for place in wrong)
        raise PositionRefused(text, end, may_hold=ahead and len(wrong) == len(marks.offsets))
    last = end.sn.transaction_id or 0
    if marks.first_transaction_id is not None and marks.first_transaction_id < last:
        text = f"TRANSACTION_OUT_OF_ORDER 513 given={marks.first_transaction_id} current={last}: ids never fall"
        raise TransactionRefused(text, end, may_hold=False)


def _token_refused(token: bytes, end: LogEnd) -> TokenRefused:
    text = f"TOKEN_MISMATCH given={_shown(token)} current={_shown(end.token)}: another writer has fenced the partition"
    return TokenRefused(text, end, may_hold=True)


def _shown(token: bytes) -> str:
    return repr(token.decode("ascii", "backslashreplace"))
