"""Runs the container file's command line as its container would, and uses the broker: ports, health check, stop signal.

It runs in a network namespace of its own (`unshare --net`), where the ports are free, on an installed wheel.

usage: container_run.py FOLDER_OF_THE_WHEEL DATA_DIR
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import confluent_kafka
from container_file import ContainerFile

import gnomon


def main(wheel: Path, data: Path) -> None:
    """Starts the broker, reaches it as its clients do, and stops it; an assertion ends with the reason."""
    file = ContainerFile()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GNOMON_")}
    variables = {**inherited, **file.variables, "GNOMON_DATA_DIR": str(data), "PYTHONPATH": str(wheel)}
    variables["PATH"] = os.pathsep.join((str(wheel / "bin"), str(Path(sys.executable).parent), inherited["PATH"]))
    command = file.words("ENTRYPOINT") + file.words("CMD")
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            ready = broker.stdout.readline()
            assert set(re.findall(r"=0\.0\.0\.0:(\d+)", ready)) == set(file.the("EXPOSE").split()), ready
            assert subprocess.run(file.words("HEALTHCHECK"), env=variables).returncode == 0
            producer = confluent_kafka.Producer({"bootstrap.servers": "localhost:9092"})
            producer.produce("orders", b"one")
            assert producer.flush(20) == 0
            with gnomon.connect_blocking("localhost:6650") as client:
                message = client.subscribe("orders", "billing", initial_position="earliest").receive(seconds=20)
                assert message is not None
                assert message.value == b"one"
            broker.send_signal(signal.Signals[file.the("STOPSIGNAL")])
            assert broker.wait(20) == 0
        finally:
            broker.kill()
    unwell = subprocess.run(file.words("HEALTHCHECK"), env=variables, stderr=subprocess.DEVNULL)
    assert unwell.returncode != 0, "the health check of an ended broker succeeds"
    print(ready.strip())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
