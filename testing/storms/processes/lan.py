"""Virtual hosts on this machine, for tests as root: network namespaces on a bridge, and disks in memory of any size.

    with Lan() as lan:
        host = lan.host()
        subprocess.Popen([*host.prefix, "gnomon", "bookie", "--host", host.address, ...])
        host.cut(other.address)                         # packets of host to this address are lost silently
        host.unplug()                                   # the host is off the network

Each host is a pair of namespaces that a child process keeps. The children end with this process, even if it is killed,
and links, addresses and mounts end with the children: no clean-up is needed. This process is on the network, too.
"""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Final, Self

NOWHERE: Final = "02:00:00:00:00:01"
"""A hardware address of no host: frames for it reach every port of the bridge, and each host drops them."""
BALLAST: Final = "ballast"


class LanMissing(Exception):
    """Namespaces are not available; the text gives the reason."""


class Namespaces:
    """A network namespace and a mount namespace, kept by a child process."""

    def __init__(self) -> None:
        self._keeper = subprocess.Popen(
            ["unshare", "--net", "--mount", "cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # an interrupt from the keyboard does not reach it
        )
        self.pid = self._keeper.pid
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        assert self._keeper.stderr is not None
        try:
            self._keeper.stdin.write(b"\n")
            self._keeper.stdin.flush()
        except BrokenPipeError:
            pass
        if not self._keeper.stdout.readline():  # otherwise `cat` runs inside the namespaces
            raise LanMissing(self._keeper.stderr.read().decode().strip())
        self.prefix = ("nsenter", f"--target={self.pid}", "--net", "--mount", "--")

    def run(self, command: str) -> None:
        """Runs a command inside the namespaces."""
        run(*self.prefix, *command.split())

    def close(self) -> None:
        """Ends the child; the namespaces exist as long as a process is in them."""
        self._keeper.kill()
        self._keeper.communicate()


class LanHost:
    """One machine of a `Lan`."""

    def __init__(self, hub: Namespaces, port: str, address: str) -> None:
        self.address = address
        self._hub = hub
        self._port = port
        self.namespaces = Namespaces()
        self._disk: Path | None = None
        hub.run(f"ip link add {port} type veth peer name lan netns {self.namespaces.pid}")
        hub.run(f"ip link set {port} master lan up")
        self.namespaces.run(f"ip address add {address}/24 dev lan")
        self.namespaces.run("ip link set lan up")
        self.namespaces.run("ip link set lo up")

    @property
    def prefix(self) -> tuple[str, ...]:
        """The prefix of a command that runs it on this host."""
        return self.namespaces.prefix

    def cut(self, address: str) -> None:
        """Drops packets from this host to the address; packets from the address arrive."""
        self.namespaces.run(f"ip neighbour replace {address} lladdr {NOWHERE} dev lan nud permanent")

    def join(self, address: str) -> None:
        """Undoes `cut`."""
        self.namespaces.run(f"ip neighbour del {address} dev lan")

    def unplug(self) -> None:
        """Takes the host off the network: no packet goes in or out."""
        self._hub.run(f"ip link set {self._port} down")

    def plug(self) -> None:
        """Undoes `unplug`."""
        self._hub.run(f"ip link set {self._port} up")

    def mount_disk(self, path: Path, size_bytes: int) -> None:
        """Mounts a disk in memory at this path; only processes on this host see it."""
        path.mkdir(parents=True, exist_ok=True)
        self.namespaces.run(f"mount -t tmpfs -o size={size_bytes} gnomon {path}")
        self._disk = Path(f"/proc/{self.namespaces.pid}/root{path}")

    def fill_disk(self) -> None:
        """Uses up all free space of the disk."""
        assert self._disk is not None, "the host has no disk of its own"
        with open(self._disk / BALLAST, "wb") as ballast:
            taken = 0
            while (free := _free_bytes(self._disk)) > 0:
                try:
                    os.posix_fallocate(ballast.fileno(), taken, free)
                    taken += free
                except OSError as error:  # the bookie has used some of the space meanwhile
                    if error.errno != errno.ENOSPC:
                        raise

    def free_disk(self) -> None:
        """Undoes `fill_disk`."""
        assert self._disk is not None, "the host has no disk of its own"
        (self._disk / BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        """Ends the host, once its processes have ended."""
        self.namespaces.close()


class Lan:
    """A network of hosts; as a context manager it ends with its block."""

    def __init__(self) -> None:
        self.hosts: list[LanHost] = []
        self._hub = Namespaces()
        self._network = f"198.18.{self._hub.pid % 256}"  # RFC 2544: for tests of networks
        self.gateway = f"{self._network}.1"
        try:
            self._hub.run("ip link add lan type bridge")
            self._hub.run("ip link set lan up")
            here = f"gnomon{self._hub.pid}"
            run("ip", "link", "add", here, "type", "veth", "peer", "name", "gateway", "netns", str(self._hub.pid))
            self._hub.run("ip link set gateway master lan up")
            run("ip", "address", "add", f"{self.gateway}/24", "dev", here)
            run("ip", "link", "set", here, "up")
        except BaseException:
            self.close()
            raise

    def host(self) -> LanHost:
        """Adds a host."""
        number = len(self.hosts) + 2
        host = LanHost(self._hub, f"port{number}", f"{self._network}.{number}")
        self.hosts.append(host)
        return host

    def close(self) -> None:
        """Ends the network and its hosts, once the processes on them have ended."""
        for host in self.hosts:
            host.close()
        self._hub.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def lan_missing(directory: Path) -> str | None:
    """The reason why a `Lan` with disks is not possible here; None if it is."""
    try:
        with Lan() as lan:
            lan.host().mount_disk(directory / "disk", 1 << 20)
    except (LanMissing, OSError) as error:
        return str(error)
    return None


def run(*command: str) -> None:
    """Runs a command.

    Raises:
        LanMissing: the command failed; the text has its standard error.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LanMissing(f"{' '.join(command)}: {done.stderr.strip()}")


def _free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
