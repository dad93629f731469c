"""The explicit last adds confirmed (LACs) that one bookie needs: which are sent, and which it has acknowledged.

1. A ledger has one LAC: the highest by its entry, then by its session. An entry that any session has confirmed stays
   confirmed, so a higher entry is newer whichever session confirmed it; bookies compare entries alone.
2. A LAC is unsure until the bookie has acknowledged it, and again after each start of the bookie, which keeps it in
   memory only.
3. An answer counts only for the last request about its ledger: not if a higher LAC was confirmed since, nor if the
   bookie has started since. A failed request changes nothing except that its LAC is asked for again.
4. At most EXPLICIT_LACS_MAX LACs are unsure, those that came last. As many are remembered as acknowledged.
5. A round asks once for each LAC that is unsure when the round begins, in as many turns as its caller likes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final

from gnomon.bookie.bookie import Confirmed
from gnomon.bookie.ids import LedgerId

EXPLICIT_LACS_MAX: Final = 10_000
"""While a bookie is away, the explicit LACs of this many ledgers wait for it, those confirmed last. As many are kept
after their acknowledgement, and are sent again after a restart of the bookie."""


@dataclass(frozen=True, slots=True, eq=False)
class LacRequest:
    """One request to a bookie to acknowledge an explicit LAC; each is different from all others."""

    ledger: LedgerId
    confirmed: Confirmed


class ExplicitLacs:
    """The state of all explicit LACs of one bookie; the caller sends them."""

    def __init__(self) -> None:
        self._fresh: dict[LedgerId, Confirmed] = {}
        """Confirmed since the last `take_fresh`, in this order."""
        self._unsure: OrderedDict[LedgerId, Confirmed] = OrderedDict()
        """Not acknowledged; of a ledger that is also fresh, the LAC before."""
        self._asked: dict[LedgerId, LacRequest] = {}
        """The requests under way; each is about the LAC in `_unsure`."""
        self._acknowledged: OrderedDict[LedgerId, Confirmed] = OrderedDict()
        """Acknowledged since the last start of the bookie; has no ledger of `_unsure`."""
        self._round: deque[LedgerId] = deque()
        """The ledgers that this round has still to ask for."""

    @property
    def is_fresh(self) -> bool:
        """Whether `take_fresh` would return any."""
        return bool(self._fresh)

    @property
    def is_due(self) -> bool:
        """Whether a LAC is unsure that no request under way is about."""
        return len(self._asked) < len(self._unsure)

    @property
    def in_round(self) -> bool:
        """Whether the round has LACs left to ask for."""
        return bool(self._round)

    def confirm(self, ledger: LedgerId, confirmed: Confirmed) -> None:
        """Takes a LAC that the bookie needs."""
        self._fresh[ledger] = max(confirmed, self._fresh.pop(ledger, confirmed))

    def take_fresh(self) -> dict[LedgerId, Confirmed]:
        """The LACs confirmed since the last call: they are sent once without a request, and are unsure from now on."""
        fresh, self._fresh = self._fresh, {}
        for ledger, confirmed in fresh.items():
            known = self._unsure.get(ledger) or self._acknowledged.get(ledger)
            if known is None or confirmed > known:
                self._acknowledged.pop(ledger, None)
                self._asked.pop(ledger, None)
                self._unsure[ledger] = confirmed
                self._unsure.move_to_end(ledger)
        self._drop_oldest()
        return fresh

    def has_started(self) -> None:
        """The bookie may have forgotten all LACs."""
        self._asked.clear()
        self._acknowledged.update(self._unsure)
        self._unsure, self._acknowledged = self._acknowledged, OrderedDict()
        self._drop_oldest()

    def begin_round(self) -> None:
        """Begins to ask for all unsure LACs that no request under way is about."""
        self._round = deque(ledger for ledger in self._unsure if ledger not in self._asked)

    def ask(self, count_max: int) -> list[LacRequest]:
        """The next requests of the round, to be sent now; `acknowledged` or `failed` must follow for each."""
        requests = []
        for _ in range(min(count_max, len(self._round))):
            ledger = self._round.popleft()
            confirmed = self._unsure.get(ledger)
            if confirmed is not None:
                request = self._asked[ledger] = LacRequest(ledger, confirmed)
                requests.append(request)
        return requests

    def acknowledged(self, request: LacRequest) -> None:
        """The bookie has the LAC of a request."""
        if self._end(request):
            self._acknowledged[request.ledger] = self._unsure.pop(request.ledger)
            self._drop_oldest()

    def failed(self, request: LacRequest) -> bool:
        """Whether the bookie has the LAC of a request is unknown: a later round asks again.

        Returns:
            Whether the answer counts (3).
        """
        return self._end(request)

    def _end(self, request: LacRequest) -> bool:
        if self._asked.get(request.ledger) is not request:
            return False
        del self._asked[request.ledger]
        return True

    def _drop_oldest(self) -> None:
        while len(self._unsure) > EXPLICIT_LACS_MAX:
            ledger, _ = self._unsure.popitem(last=False)
            self._asked.pop(ledger, None)
        while len(self._acknowledged) > EXPLICIT_LACS_MAX:
            self._acknowledged.popitem(last=False)
