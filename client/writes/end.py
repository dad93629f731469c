"""The end of a partition, as its leader confirmed it."""

from __future__ import annotations

from typing import Any, NamedTuple

from gnomon.client.errors import BrokerFailed
from gnomon.log.sn import SN


class End(NamedTuple):
    """The end of a partition at some instant of the call that asked for it."""

    sn: SN
    """The last record; `EMPTY` if none was ever written."""
    token: bytes = b""
    """The fencing token, empty for none."""

    @classmethod
    def decode(cls, answer: Any) -> End:
        """The end that a broker has answered.

        Raises:
            BrokerFailed: it answers in another form.
        """
        try:
            sn, token = answer
            return cls(SN.decode(sn), bytes(token))
        except (ValueError, TypeError) as error:
            raise BrokerFailed(f"the broker has answered in another form: {error}") from error
