"""A flipped bit anywhere in a store ends in a correct answer, a refusal in words, or an error.

It never ends in a wrong record, a silent loss, or a traceback.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from damaged_store import Outcome, Place, damaged, draw, fill, judge, used_bytes

PLACES = int(os.environ.get("PLACES", "12"))
SEED = int(os.environ.get("SEED", "1"))
AT_ONCE = 2


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sound") / "data"
    fill(directory)
    return directory


def test_no_flipped_bit_gives_a_wrong_record_a_silent_loss_or_a_traceback(sound: Path, tmp_path: Path) -> None:
    stream = random.Random(SEED)
    sizes = used_bytes(sound)
    places = [draw(stream, sizes) for _ in range(PLACES)]

    def outcome_of(place: Place) -> Outcome:
        with damaged(sound, place, tmp_path) as directory:
            return judge(directory)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(outcome_of, places))
    counts = Counter((place.store, outcome.kind) for place, outcome in zip(places, outcomes, strict=True))
    print(f"\n{PLACES} flipped bits, sizes {sizes}:")
    for (store, kind), count in sorted(counts.items()):
        print(f"  {store:8}  {kind:8}  {count:5}")
    words = Counter(_shape(word) for outcome in outcomes for word in outcome.words)
    for word, count in words.most_common(40):
        print(f"  {count:5}  {word[:160]}")
    faults = [(place, fault) for place, outcome in zip(places, outcomes, strict=True) for fault in outcome.faults]
    assert faults == []


def _shape(word: str) -> str:
    """The words without numbers and paths."""
    return "".join("#" if letter.isdigit() else letter for letter in word.replace(str(Path.cwd()), ""))
