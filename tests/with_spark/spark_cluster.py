"""A standalone cluster of Spark: a master and two workers of one core, each with a host of its own on the loopback.

Spark runs no second attempt of a task on a host that has the first one, so the workers need two hosts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pyspark

from gnomon.testing.etcd_server import free_port

MASTER_HOST = "127.0.0.1"
WORKER_HOSTS = ("127.0.0.1", "127.0.0.2")
START_SECONDS = 120.0
SPARK_HOME = Path(pyspark.__file__).parent
REGISTERED = "Successfully registered with master"


class SparkCluster:
    """The processes; as a context manager, they end with its block.

    Args:
        folder: receives their logs and the files of executors.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._processes = folder, list[subprocess.Popen[bytes]]()
        self._port = free_port()

    @property
    def master(self) -> str:
        """The address of the master."""
        return f"spark://{MASTER_HOST}:{self._port}"

    def __enter__(self) -> Self:
        try:
            master = ["--host", MASTER_HOST, "--port", str(self._port), "--webui-port", "0"]
            self._start("master.Master", MASTER_HOST, "master", master)
            for number, host in enumerate(WORKER_HOSTS):
                work = ["--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir"]
                self._start("worker.Worker", host, f"worker-{number}", [*work, str(self._folder / "work"), self.master])
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, name: str, host: str, log: str, words: list[str]) -> None:
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
        environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": host}
        environment |= {"SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable}
        with open(self._folder / f"{log}.log", "wb") as output:
            self._processes.append(
                subprocess.Popen(
                    command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
                )
            )

    def _wait(self) -> None:
        """Waits until the workers are registered."""
        logs = [self._folder / f"worker-{number}.log" for number in range(len(WORKER_HOSTS))]
        deadline = time.monotonic() + START_SECONDS
        while not all(REGISTERED in log.read_text() for log in logs):
            assert time.monotonic() < deadline, f"no cluster of Spark: {[log.read_text()[-500:] for log in logs]}"
            assert all(process.poll() is None for process in self._processes), [log.read_text() for log in logs]
            time.sleep(0.1)
