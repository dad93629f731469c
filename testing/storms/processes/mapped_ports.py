"""A host of a `Lan` that others reach only through mapped ports, as a container with `docker -p` or a node port.

    with Lan() as lan:
        host = PortMapping(lan, {19092: 9092})
        subprocess.Popen([*host.prefix, "gnomon", "standalone", ...])   # listens on host.address:9092
        host.router.address                                             # others connect to port 19092 there

A router with Linux's address translation (nftables) is between the host and the others: they have no route to the
host's address. The host's own packets leave with the address of the router, also those that come back to
it through a mapped port.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Final, Self

from gnomon.testing.storms.processes.lan import Lan, LanMissing, Namespaces

NETWORK: Final = "10.64.0"
ADDRESS: Final = f"{NETWORK}.2"
GATEWAY: Final = f"{NETWORK}.1"


class PortMapping:
    """The host, and the router before it; as a context manager they end with their block."""

    def __init__(self, lan: Lan, ports: Mapping[int, int]) -> None:
        """Maps ports of the router to ports of the host.

        Raises:
            LanMissing: nftables is not available.
        """
        if shutil.which("nft") is None:
            raise LanMissing("there is no program nft: install nftables")
        self.router = lan.host()
        self.address = ADDRESS
        self._own = Namespaces()
        self.prefix = self._own.prefix
        try:
            self._connect(ports)
        except BaseException:
            self.close()
            raise

    def _connect(self, ports: Mapping[int, int]) -> None:
        router, own = self.router.namespaces, self._own
        router.run(f"ip link add inside type veth peer name outside netns {own.pid}")
        router.run(f"ip address add {GATEWAY}/24 dev inside")
        router.run("ip link set inside up")
        own.run(f"ip address add {ADDRESS}/24 dev outside")
        own.run("ip link set outside up")
        own.run("ip link set lo up")
        own.run(f"ip route add default via {GATEWAY}")
        router.run("sysctl -q -w net.ipv4.ip_forward=1")
        router.run("nft add table ip gnomon")
        router.run("nft add chain ip gnomon before { type nat hook prerouting priority dstnat ; }")
        router.run("nft add chain ip gnomon after { type nat hook postrouting priority srcnat ; }")
        for outer, inner in ports.items():
            here = f"ip daddr {self.router.address} tcp dport {outer}"
            router.run(f"nft add rule ip gnomon before {here} dnat to {ADDRESS}:{inner}")
        router.run(f"nft add rule ip gnomon after ip saddr {NETWORK}.0/24 masquerade")

    def close(self) -> None:
        """Ends the host, once its processes have ended; the router ends with the network."""
        self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def mapping_missing() -> str | None:
    """The reason why no `PortMapping` is possible here; None if it is."""
    try:
        with Lan() as lan, PortMapping(lan, {1: 1}):
            return None
    except (LanMissing, OSError) as error:
        return str(error)
