"""The systems under measurement: how each is prepared, started, given topics and stopped."""

from __future__ import annotations

import base64
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench.generator import GeneratorUnavailable
from bench.process import MeasuredProcess
from bench.workspace import SOURCES, Workspace

TOPIC_CONFIG = {"max.message.bytes": "2097152"}
"""Room for batches of 1 MiB plus their header."""


def free_port() -> int:
    """A port that nothing listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Installation:
    """A system with a data directory and a port; it can be started many times, one after the other."""

    system: System
    data_dir: Path
    port: int

    def start(self) -> Server:
        return self.system.start(self)


@dataclass
class Server:
    """A started system; not necessarily ready. `started_at_seconds` is the monotonic time just before exec."""

    port: int
    process: MeasuredProcess
    """The process that clients use, and whose processor time and memory are measured."""
    started_at_seconds: float

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.process.kill()


class System(ABC):
    """One kind of server."""

    name: ClassVar[str]
    only_produces: ClassVar[bool] = False
    """It supports only Produce: no topics to create, no records to read."""
    topic_config: ClassVar[Mapping[str, str]] = TOPIC_CONFIG

    def install(self, workspace: Workspace) -> Installation:
        """A fresh data directory. Raises GeneratorUnavailable if this machine lacks something that the system needs."""
        return Installation(self, workspace.data_dir(self.name), free_port())

    @abstractmethod
    def start(self, installation: Installation) -> Server:
        """Starts it; it must listen on the installation's port."""


class Program(System):
    """A system that is one process."""

    @abstractmethod
    def command(self, installation: Installation) -> list[str]:
        """The command to execute."""

    def start(self, installation: Installation) -> Server:
        log = installation.data_dir.parent / f"{installation.data_dir.name}.log"
        command = self.command(installation)
        started_at = time.monotonic()
        return Server(installation.port, MeasuredProcess(command, log), started_at)


def gnomon(*arguments: str) -> list[str]:
    """A command of gnomon's."""
    script = Path(sys.executable).with_name("gnomon")
    program = [str(script)] if script.exists() else [sys.executable, "-m", "gnomon.cli.main"]
    return [*program, *arguments]


def check_gnomon() -> None:
    """Raises GeneratorUnavailable if gnomon is not installed."""
    if importlib.util.find_spec("gnomon.cli.main") is None:
        raise GeneratorUnavailable("gnomon's command line is not installed for this Python: run `make run` once")


class Gnomon(Program):
    name = "gnomon"

    def install(self, workspace: Workspace) -> Installation:
        check_gnomon()
        return super().install(workspace)

    def command(self, installation: Installation) -> list[str]:
        ports = ("--kafka-port", str(installation.port), "--native-port", "0", "--admin-port", "0")
        return gnomon("standalone", *ports, "--data-dir", str(installation.data_dir))


class Floor(Program):
    name = "floor"
    only_produces = True

    def command(self, installation: Installation) -> list[str]:
        return [sys.executable, str(SOURCES / "floor.py"), str(installation.port), str(installation.data_dir)]


def fetch_jars(pom: Path, into: Path, what: str) -> None:
    """Copies the jars of a Maven project to a folder. Raises GeneratorUnavailable if they cannot be fetched."""
    maven = shutil.which("mvn")
    if maven is None:
        raise GeneratorUnavailable(f"no mvn on the path: the jars of {what} come through Maven")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={into}"]
    done = subprocess.run([maven, "-q", "-B", "-f", str(pom), *goal], capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(into, ignore_errors=True)
        raise GeneratorUnavailable(f"Maven could not fetch {what}: {done.stdout.strip()[-300:]}")


@dataclass(frozen=True)
class Kafka(Program):
    """Apache Kafka from Maven as one KRaft node with the JVM options of its own start script."""

    name: ClassVar[str] = "kafka"
    cache: Path

    JVM_OPTIONS: ClassVar[list[str]] = [
        *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
        *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
    ]

    def install(self, workspace: Workspace) -> Installation:
        java = self._java()
        self._fetch_jars()
        installation = super().install(workspace)
        self._configure(installation)
        cluster_id = base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode().replace("-", "A")
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "--standalone"]
        properties = str(installation.data_dir / "server.properties")
        command = [java, "-Xmx256M", *self._classpath(installation), *tool, "-c", properties]
        done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
        if done.returncode:
            raise GeneratorUnavailable(f"Kafka's storage tool failed: {(done.stderr or done.stdout).strip()[-300:]}")
        return installation

    def command(self, installation: Installation) -> list[str]:
        properties = str(installation.data_dir / "server.properties")
        return [self._java(), *self.JVM_OPTIONS, *self._classpath(installation), "kafka.Kafka", properties]

    def _java(self) -> str:
        java = shutil.which("java")
        if java is None:
            raise GeneratorUnavailable("no java on the path: Apache Kafka needs a JVM (17 or newer)")
        return java

    @property
    def _jars(self) -> Path:
        return self.cache / "kafka" / "lib"

    def _classpath(self, installation: Installation) -> list[str]:
        logging = installation.data_dir / "log4j2.yaml"
        return ["-cp", f"{self._jars}/*", f"-Dlog4j2.configurationFile={logging}"]

    def _fetch_jars(self) -> None:
        if not list(self._jars.glob("kafka_2.13-*.jar")):
            fetch_jars(SOURCES / "kafka_pom.xml", self._jars, "Apache Kafka")

    def _configure(self, installation: Installation) -> None:
        port, controller, data = installation.port, free_port(), installation.data_dir
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(data / "logs"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
        }
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (data / "server.properties").write_text("".join(lines))
        (data / "log4j2.yaml").write_text(
            "Configuration: {Appenders: {Console: {name: C, target: SYSTEM_ERR, PatternLayout: "
            '{pattern: "%d %p %c %m%n"}}}, Loggers: {Root: {level: WARN, AppenderRef: {ref: C}}}}\n'
        )


class KafkaSynced(Kafka):
    """The same, acknowledging after the record is on disk, like gnomon."""

    name = "kafka-synced"
    topic_config = TOPIC_CONFIG | {"flush.messages": "1"}
