"""One seed of a sweep again, as a transcript: `make simulate SEED=17 [OF=broker|ledgers|cluster|shadows|…] [ALL=1]`.

Who starts and ends, what faults come, what nodes and clients log, each with its virtual second; with ALL every message
and commit.
"""

from __future__ import annotations

import os
import re
import sys
import traceback

from broker_scenario import (
    CLUSTER_SCENARIO,
    KEY_SHARED,
    SCENARIO,
    SHADOW_CLUSTER_SCENARIO,
    SHADOW_SCENARIO,
    SHADOWED_SCENARIO,
    SHADOWED_UNHEARD,
    SUBSCRIBED,
    UNHEARD,
)

from gnomon.testing.ledger_scenario import LedgerScenario
from gnomon.testing.simulation import simulate

SCENARIOS = {
    "broker": SCENARIO,
    "ledgers": LedgerScenario(),
    "cluster": CLUSTER_SCENARIO,
    "cluster-unheard": UNHEARD,
    "shadows": SHADOWED_SCENARIO,
    "shadows-unheard": SHADOWED_UNHEARD,
    "shadows-of-one-broker": SHADOW_SCENARIO,
    "shadows-alone": SHADOW_CLUSTER_SCENARIO,
    "subscriptions": SUBSCRIBED,
    "key-shared": KEY_SHARED,
}
DETAIL = re.compile(r" bytes [0-9a-f]{8}$|  closed$|  commit /|  synced /|  wrote /")


def replay(seed: int, of: str, everything: bool) -> int:
    """Prints the transcript, and gives the exit code."""

    def tell(line: str) -> None:
        if everything or not DETAIL.search(line):
            print(line)

    try:
        outcome = simulate(seed, SCENARIOS[of], told=tell)
    except Exception as error:
        story = "".join(traceback.format_exception_only(error)).partition(", the last lines of its trace:")[0]
        print(f"seed {seed} of {of} failed: {story}")
        return 1
    print(f"seed {seed} of {of} passed: {outcome.virtual_seconds:.1f} virtual seconds, trace {outcome.digest}")
    return 0


if __name__ == "__main__":
    sys.exit(replay(int(os.environ["SEED"]), os.environ.get("OF", "cluster"), bool(os.environ.get("ALL"))))
