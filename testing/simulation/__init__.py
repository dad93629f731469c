"""A simulated world for services of your own: virtual time, machines, network and disks with faults, all from a seed.

`docs/simulation.md` is the guide. The names of `__all__`, and those of `gnomon.testing.simulation.guided`, are the
public surface of the package. Its other modules and names may change without notice.

- To run: `simulate` runs one seed, `sweep` many of them, `assert_traces_repeat` proves that seeds repeat.
- To direct: a `Simulation` has `Machine`s, each with a disk and a clock, and the network (`Fabric`) between them.
- To break things: a `Storm` injects the kinds of `Fault` at the rates of a `FaultMix`; `NetworkConditions` and
  `DiskConditions` are the behaviour between faults.
- To observe: a `Trace` is the transcript, a `Coverage` counts events, the `check_…` functions judge histories.
"""

from gnomon.testing.simulation.checkers import (
    ConditionalWrite,
    KeyRead,
    LedgerHistory,
    check_conditional_writes,
    check_copies,
    check_ledger,
    check_watch,
)
from gnomon.testing.simulation.coverage import Coverage, SimulatedLogger
from gnomon.testing.simulation.disk.simulated_disk import DiskConditions, MachineDisk
from gnomon.testing.simulation.faults import Fault, FaultMix, Storm, stand_still
from gnomon.testing.simulation.ground import SimulationFailed
from gnomon.testing.simulation.guard import OutsideWorld
from gnomon.testing.simulation.machine import Machine, Node
from gnomon.testing.simulation.network.simulated_network import Fabric, NetworkConditions
from gnomon.testing.simulation.process import NodeKilled, SimulatedProcess
from gnomon.testing.simulation.simulated_clock import MachineClock
from gnomon.testing.simulation.simulated_world import SimulatedWorld
from gnomon.testing.simulation.simulation import Simulation, SimulationOutcome, simulate
from gnomon.testing.simulation.sweeps import SweepResult, assert_traces_repeat, seeds_to_find, sweep
from gnomon.testing.simulation.trace import Trace

__all__ = [
    "ConditionalWrite",
    "Coverage",
    "DiskConditions",
    "Fabric",
    "Fault",
    "FaultMix",
    "KeyRead",
    "LedgerHistory",
    "Machine",
    "MachineClock",
    "MachineDisk",
    "NetworkConditions",
    "Node",
    "NodeKilled",
    "OutsideWorld",
    "SimulatedLogger",
    "SimulatedProcess",
    "SimulatedWorld",
    "Simulation",
    "SimulationFailed",
    "SimulationOutcome",
    "Storm",
    "SweepResult",
    "Trace",
    "assert_traces_repeat",
    "check_conditional_writes",
    "check_copies",
    "check_ledger",
    "check_watch",
    "seeds_to_find",
    "simulate",
    "stand_still",
    "sweep",
]
