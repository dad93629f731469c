from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon.testing.storms.processes.lan import Lan, LanHost, lan_missing

LISTEN = "import socket; s = socket.create_server(('', 7)); print(flush=True); s.accept()[0].recv(1)"
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 7), timeout=0.7)"


@pytest.fixture
def lan(tmp_path: Path) -> Iterator[Lan]:
    missing = lan_missing(tmp_path)
    if missing is not None:
        pytest.skip(f"NOT TESTED: there are no namespaces: {missing}")
    with Lan() as found:
        yield found


def reaches(host: LanHost, other: LanHost) -> bool:
    with subprocess.Popen([*other.prefix, sys.executable, "-c", LISTEN], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        words = [*host.prefix, sys.executable, "-c", CONNECT, other.address]
        connected = subprocess.run(words, capture_output=True, text=True, check=False)
        server.kill()
    assert connected.returncode == 0 or "TimeoutError" in connected.stderr, connected.stderr
    return connected.returncode == 0


def test_a_cut_link_loses_packets_silently_until_it_is_joined(lan: Lan) -> None:
    one, two, three = lan.host(), lan.host(), lan.host()
    assert reaches(one, two)
    one.cut(two.address)
    assert not reaches(one, two)
    assert not reaches(two, one), "the answers are lost"
    assert reaches(one, three)
    assert reaches(three, two)
    one.join(two.address)
    assert reaches(one, two)
    assert reaches(two, one)


def test_an_unplugged_host_is_unreachable(lan: Lan) -> None:
    one, two = lan.host(), lan.host()
    one.unplug()
    assert not reaches(two, one)
    one.plug()
    assert reaches(two, one)


def test_only_its_host_sees_a_disk_and_a_full_disk_refuses_writes(lan: Lan, tmp_path: Path) -> None:
    host = lan.host()
    disk = tmp_path / "small"
    host.mount_disk(disk, 1 << 20)
    write = [*host.prefix, sys.executable, "-c", f"open({str(disk / 'file')!r}, 'wb', 0).write(b'x')"]
    host.fill_disk()
    assert f"[Errno {errno.ENOSPC}]" in subprocess.run(write, capture_output=True, text=True, check=False).stderr
    host.free_disk()
    subprocess.run(write, check=True)
    assert os.listdir(disk) == [], "the file is seen by the host only"
