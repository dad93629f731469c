from __future__ import annotations

from itertools import pairwise

import msgpack
import pytest

from gnomon.log.dlsn import BEGINNING, Dlsn


def test_a_later_record_has_a_larger_dlsn() -> None:
    in_order = [BEGINNING, Dlsn(0, 0, 1), Dlsn(0, 1, 0), Dlsn(7, 0, 0), Dlsn(7, 0, 5), Dlsn(7, 2, 1)]
    assert all(one < next_one for one, next_one in pairwise(in_order))


def test_a_dlsn_survives_a_round_trip_over_msgpack() -> None:
    dlsn = Dlsn(2**40, 2**33, 17)
    assert Dlsn.decode(msgpack.unpackb(msgpack.packb(dlsn.encode()))) == dlsn


@pytest.mark.parametrize("stored", [[], [1, 2], [1, 2, 3, 4], [1, -1, 0], [1, "2", 3], [True, 1, 2]])
def test_a_value_that_is_no_dlsn_is_refused(stored: list[int]) -> None:
    with pytest.raises(ValueError, match="three numbers"):
        Dlsn.decode(stored)
