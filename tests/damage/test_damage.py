"""Damage to the stores of a standalone node ends in a correct answer, a refusal in words, or an error.

It never ends in a wrong record, a silent loss, a traceback or a signal. A refusal is one line.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from damages import Damage, draw, used_bytes
from judged import ALL, FIRST, Outcome, Written, fill, judge_records, last_line

from gnomon.testing import KafkaBroker
from gnomon.testing.kafka_broker import BrokerNotStarted

PLACES = int(os.environ.get("PLACES", "12"))
SEED = int(os.environ.get("SEED", "1"))
AT_ONCE = 2
STORES = ("metadata", "bookie")


class Directories(NamedTuple):
    """A data directory, and an older copy of it."""

    newest: Path
    older: Path


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Directories:
    newest = tmp_path_factory.mktemp("sound") / "data"
    older = newest.with_name("older")
    for before, after in ((0, FIRST), (FIRST.records, ALL)):
        with KafkaBroker(data_dir=newest) as broker:
            fill(broker.bootstrap_servers, before, after)
        if after is FIRST:
            shutil.copytree(newest, older)
    return Directories(newest, older)


def judged(sound: Directories, damages: list[Damage], at: Path, written: Written = ALL, **settings: bool) -> Outcome:
    """The outcome of a start on a damaged copy, which is removed afterwards."""
    copy = at / "-".join(f"{damage.store}-{damage.kind}-{damage.at}-{damage.to}" for damage in damages)
    shutil.copytree(sound.newest, copy)
    try:
        for damage in damages:
            damage.do(copy / damage.store, sound.older / damage.store)
        return _started(copy, written, {f"bookie.{name}": value for name, value in settings.items()})
    finally:
        shutil.rmtree(copy)


def _started(directory: Path, written: Written, settings: dict[str, bool]) -> Outcome:
    outcome = Outcome()
    broker = KafkaBroker(data_dir=directory, settings=settings)
    try:
        broker.start()
    except BrokerNotStarted as error:
        outcome.kind = "refused"
        broker.close()
        _refused(str(error), outcome)
        return outcome
    try:
        judge_records(broker.bootstrap_servers, written, outcome)
        ended = not broker.running
        code = broker.stop()
        if ended:
            outcome.kind = "refused"
            _refused(broker.log(), outcome)
        if code < 0 or (code and not ended):
            outcome.faults.append(f"it ended with {code}: {last_line(broker.log())}")
        outcome.check_log(broker.log())
        if outcome.kind == "partly" and not broker.log().strip():
            outcome.faults.append(f"{outcome.words}, and the log has no line about it")
    finally:
        broker.close()
    return outcome


def _refused(output: str, outcome: Outcome) -> None:
    words = last_line(output)
    outcome.words.append(words)
    outcome.check_log(output)
    if not words.startswith("Error: "):
        outcome.faults.append(f"ended without a word: {output[-600:]}")


def test_no_damage_gives_a_wrong_record_a_silent_loss_or_a_traceback(sound: Directories, tmp_path: Path) -> None:
    stream = random.Random(SEED)
    sizes = {store: used_bytes(sound.newest / store) for store in STORES}
    drawn = []
    for _ in range(PLACES):
        store = stream.choice(STORES)
        drawn.append(draw(stream, store, sizes[store]))
    damages = list(dict.fromkeys(drawn))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(lambda damage: judged(sound, [damage], tmp_path), damages))
    print(f"\n{len(damages)} damages, {len(drawn)} drawn with seed {SEED}, sizes {sizes}:")
    show([(f"{damage.store:8}  {damage.kind:14}", outcome) for damage, outcome in zip(damages, outcomes, strict=True)])
    found = [(damage, fault) for damage, outcome in zip(damages, outcomes, strict=True) for fault in outcome.faults]
    assert found == []


def test_older_copies_of_both_stores_fit_together(sound: Directories, tmp_path: Path) -> None:
    damages = [Damage("older copy", store) for store in STORES]
    assert judged(sound, damages, tmp_path, FIRST) == Outcome("correct")


def test_an_older_copy_of_the_entries_is_refused_until_the_loss_is_accepted(sound: Directories, tmp_path: Path) -> None:
    damages = [Damage("older copy", "bookie")]
    refused = judged(sound, damages, tmp_path)
    assert refused.kind == "refused"
    assert "bookie.accept_older_store" in refused.words[0]
    assert refused.faults == []
    assert judged(sound, damages, tmp_path, FIRST, accept_older_store=True) == Outcome("correct")


def test_an_older_copy_of_the_metadata_is_refused(sound: Directories, tmp_path: Path) -> None:
    refused = judged(sound, [Damage("older copy", "metadata")], tmp_path)
    assert refused.kind == "refused"
    assert "the metadata is an older copy" in refused.words[0]


def show(outcomes: list[tuple[str, Outcome]]) -> None:
    """Prints how many outcomes of each kind there are, and their words."""
    counts = Counter((what, outcome.kind) for what, outcome in outcomes)
    for (what, kind), count in sorted(counts.items()):
        print(f"  {what}  {kind:8}  {count:5}")
    words = Counter(_shape(word) for _, outcome in outcomes for word in outcome.words)
    for word, count in words.most_common(60):
        print(f"  {count:5}  {word[:200]}")


def _shape(word: str) -> str:
    """The words without numbers."""
    return "".join("#" if letter.isdigit() else letter for letter in word)
