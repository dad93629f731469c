from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import trio

from gnomon.testing.simulation.ground import SimulationFailed
from gnomon.testing.simulation.guard import OutsideWorld, guard
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, simulate


def node_code(source: str, module: str = "gnomon.broker.toy") -> Callable[[], Any]:
    """A function `go` that appears to be defined in a node's module."""
    namespace: dict[str, Any] = {"__name__": module}
    exec(source, namespace)  # noqa: S102 - the text is in this file
    go: Callable[[], Any] = namespace["go"]
    return go


FORBIDDEN = {
    "time": "import time\ndef go(): time.time()",
    "monotonic": "import time\ndef go(): time.monotonic()",
    "perf_counter": "import time\ndef go(): time.perf_counter()",
    "sleep": "import time\ndef go(): time.sleep(0)",
    "random": "import random\ndef go(): random.random()",
    "shuffle": "import random\ndef go(): random.shuffle([])",
    "urandom": "import os\ndef go(): os.urandom(1)",
    "uuid4": "import uuid\ndef go(): uuid.uuid4()",
    "secrets": "import secrets\ndef go(): secrets.token_bytes(4)",
    "socket": "import socket\ndef go(): socket.socket()",
    "socketpair": "import socket\ndef go(): socket.create_connection(('127.0.0.1', 1))",
    "thread": "import threading\ndef go(): threading.Thread(target=print).start()",
    "executor": "import concurrent.futures\ndef go(): concurrent.futures.ThreadPoolExecutor().submit(int)",
    "trio thread": "import trio\ndef go(): trio.to_thread.run_sync(int)",
}


@pytest.mark.parametrize("source", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_node_code_that_bypasses_its_world_raises(source: str) -> None:
    go = node_code(source)
    with guard(("gnomon",)), pytest.raises(OutsideWorld, match=r"gnomon\.broker\.toy called .* in a simulation"):
        go()


def test_names_imported_before_the_guard_are_guarded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("gnomon.broker.toy")
    exec("from time import monotonic\ndef go(): monotonic()", vars(module))  # noqa: S102 - the text is here
    monkeypatch.setitem(__import__("sys").modules, "gnomon.broker.toy", module)
    with guard(("gnomon",)), pytest.raises(OutsideWorld):
        vars(module)["go"]()
    vars(module)["go"]()


def test_other_code_is_not_guarded_and_all_functions_are_restored() -> None:
    before = (time.time, threading.Thread.start, trio.to_thread.run_sync)
    with guard(("gnomon",)):
        node_code(FORBIDDEN["time"], "gnomon.testing.toy")()
        node_code(FORBIDDEN["random"], "somebody.elses")()
        assert time.time is not before[0]
    assert (time.time, threading.Thread.start, trio.to_thread.run_sync) == before


def test_a_simulation_is_guarded() -> None:
    go = node_code(FORBIDDEN["time"])

    async def node(world: SimulatedWorld) -> None:
        go()

    async def scenario(simulation: Simulation) -> None:
        simulation.machine("node").start(node)
        await simulation.sleep(1)

    with pytest.raises(SimulationFailed, match=r"time comes from world\.clock"):
        simulate(1, scenario)
