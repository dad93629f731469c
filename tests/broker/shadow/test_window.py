"""How much is on its way to one broker."""

from __future__ import annotations

from gnomon.broker.shadow.window import BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN, FRAMES_MAX, WINDOW_BYTES, Window


def test_the_window_is_full_by_bytes_or_frames_until_they_are_heard_or_lost() -> None:
    window = Window()
    assert window.room_bytes == WINDOW_BYTES
    window.sent(1000)
    window.sent(WINDOW_BYTES - 1000)
    assert window.room_bytes == 0
    window.heard(1)
    assert window.room_bytes == 1000
    window.heard(2)
    for _ in range(FRAMES_MAX):
        assert window.room_bytes > 0
        window.sent(1)
    assert window.room_bytes == 0
    window.lost()
    assert window.room_bytes == WINDOW_BYTES
    assert window.frame == FRAMES_MAX + 2, "numbers are not given twice"


def test_a_broker_that_stays_away_is_let_alone_for_longer_and_longer_until_it_is_heard() -> None:
    window = Window()
    pauses = [window.lost() for _ in range(10)]
    assert pauses[:3] == [BACKOFF_SECONDS_MIN, 2 * BACKOFF_SECONDS_MIN, 4 * BACKOFF_SECONDS_MIN]
    assert pauses[-1] == BACKOFF_SECONDS_MAX
    window.heard(0)
    assert window.lost() == BACKOFF_SECONDS_MIN
