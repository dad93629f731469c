"""The processor time and the memory of a node's process, as Linux counts them."""

from __future__ import annotations

from pathlib import Path


class WatchedNode:
    """A process, watched from outside."""

    def __init__(self, pid: int) -> None:
        self._process = Path("/proc") / str(pid)
        self._schedule = self._process / "task" / str(pid) / "schedstat"

    def processor_seconds(self) -> float:
        """Processor time of the main thread, which runs the event loop; a busy machine does not change it."""
        return int(self._schedule.read_text().split()[0]) / 1e9

    def resident_bytes(self) -> int:
        """Memory that is resident now."""
        return self._status("VmRSS")

    def address_bytes(self) -> int:
        """The address space of now, which `ulimit -v` bounds."""
        return self._status("VmSize")

    def peak_bytes(self) -> int:
        """The most memory that was resident since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """The peak is the memory of now."""
        (self._process / "clear_refs").write_text("5")

    def _status(self, name: str) -> int:
        lines = (self._process / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
