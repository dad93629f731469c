"""The terms of an append: what the writer expects of the log, and what became of that. Pure.

1. Terms are judged when it is the append's turn, against what the log has given out so far (`PartitionLog.append`).
2. A refusal writes nothing, takes no sequence of the producer, and names the SN at the time of the judgement.
3. A refusal is given only once the record that it names is durable. If the expectation may come true at another
   leader, the metadata service confirms first that this one still leads (`sn` invariant 2).
"""

from __future__ import annotations

from gnomon.log.dlsn import Dlsn
from gnomon.log.sn import SN, Match, match


class TermsRefused(Exception):
    """The log does not end where the writer expects it to end; nothing was appended."""

    def __init__(self, expected: SN, current: SN, found: Match) -> None:
        super().__init__(f"the log does not end as expected ({expected}) but with {current}")
        self.current = current
        """The last record that was given out when the append was judged."""
        self.may_come_true = found is Match.AHEAD
        """Whether the expectation may hold at another leader, or later."""


class Terms:
    """The terms of one append; `place` or `refused` is set once it is decided."""

    __slots__ = ("expected", "place", "refused")

    def __init__(self, expected: SN | None = None) -> None:
        self.expected = expected
        """The fields of the SN that have to match; None if any end of the log will do."""
        self.place: Dlsn | None = None
        """The place of the batch's last record; None for a refused batch, and for one that was in the log already."""
        self.refused: TermsRefused | None = None
        """Why the batch was refused, if its terms are the reason."""

    def judge(self, current: SN) -> None:
        """Compares the terms with the present end of the log.

        Raises:
            TermsRefused: the append must not be made.
        """
        if self.expected is not None:
            found = match(self.expected, current)
            if found is not Match.HOLDS:
                raise TermsRefused(self.expected, current, found)
