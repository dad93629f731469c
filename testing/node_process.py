"""Nodes for tests: processes of gnomon that are killed, paused, and started again on the same ports; every call blocks.

broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", calls=2)
broker.delay("Fetch", seconds=1, calls=3)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.testing.daemon import Daemon, DaemonNotStarted


class BrokerNotStarted(Exception):
    """A process ended or stayed silent before it was ready; the text contains its output."""


class NodeProcess:
    """A process of gnomon, which ends with this one; its addresses and its data survive it."""

    def __init__(
        self,
        words: Sequence[object],
        ports: Mapping[str, str],
        log: Path,
        variables: Mapping[str, str],
        command: Sequence[str] | None = None,
    ) -> None:
        """Starts nothing yet.

        Args:
            words: the words after `gnomon`.
            ports: by option that sets a port, the name of its address in the `ready` line.
            log: receives the standard error of all starts.
            variables: of its environment; see `daemon.spawn`.
            command: the program that takes the words; None is this Python with this gnomon.
        """
        self.addresses = dict.fromkeys(ports.values(), "127.0.0.1:0")
        """By name of the `ready` line: `host:port`, known from the first start on."""
        self._words = words
        self._ports = ports
        self._log = log
        self._variables = variables
        self._command = command
        self._daemon: Daemon | None = None
        self._paused = False

    @property
    def pid(self) -> int:
        """The process id of the running node."""
        return self._running_daemon().pid

    @property
    def running(self) -> bool:
        """Whether the process exists, paused or not."""
        return self._daemon is not None and self._daemon.running

    @property
    def paused(self) -> bool:
        """Whether the node is suspended, between `pause` and `resume`."""
        return self._paused

    def log(self) -> str:
        """Its standard error so far, of all starts."""
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        """Starts the node and returns once it serves: the first time on free ports, then on the same ones.

        Raises:
            BrokerNotStarted: with its output.
        """
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        """Starts the node, and does not wait until it serves."""
        assert not self.running, "the process runs already"
        ports = []
        for option, name in self._ports.items():
            ports += [option, _port(self.addresses[name])]
        self._paused = False
        self._daemon = Daemon([*self._words, *ports], self._log, self._variables, self._command)

    def wait_ready(self) -> None:
        """Returns once the spawned node serves; raises as `start`."""
        try:
            ready = self._running_daemon().wait_ready().ready
        except DaemonNotStarted as error:
            self._daemon = None
            raise BrokerNotStarted(str(error)) from None
        self.addresses = {name: ready[name] for name in self._ports.values()}

    def stop(self) -> int:
        """Asks the node to end (SIGTERM) and waits: pending requests are answered first. A paused one is resumed.

        Returns:
            its exit code, 0 when all went well.
        """
        daemon, self._daemon = self._daemon, None
        self._paused = False
        return 0 if daemon is None else daemon.stop()

    def kill(self) -> None:
        """Ends the node at once (SIGKILL), at any point of its work, also while it is paused."""
        daemon, self._daemon = self._daemon, None
        self._paused = False
        if daemon is not None:
            daemon.kill()

    def pause(self) -> None:
        """Suspends the node (SIGSTOP): its connections stay open, and it neither reads nor answers.

        Clients see what they see of a machine that hangs, or of a cut network. Idempotent.
        """
        self._running_daemon().pause()
        self._paused = True

    def resume(self) -> None:
        """Undoes `pause`: the node continues where it was suspended. Idempotent."""
        self._running_daemon().resume()
        self._paused = False

    def _running_daemon(self) -> Daemon:
        assert self._daemon is not None, "the process does not run: call start()"
        return self._daemon


class BrokerProcess(NodeProcess):
    """A broker, with errors and delays for its next requests of Kafka's protocol.

    A fault is used up by `calls` requests. Faults of one API hit in the order in which they were asked for; `heal` and
    a restart forget them.
    """

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for Kafka clients; stays the same over `stop`, `kill` and `start`."""
        return self.addresses["kafka"]

    @property
    def native_address(self) -> str:
        """`host:port` for `gnomon.connect`; stays the same over `stop`, `kill` and `start`."""
        return self.addresses["native"]

    @property
    def admin_url(self) -> str:
        """The address of health, metrics and the admin API."""
        return f"http://{self.addresses['admin']}"

    @property
    def host(self) -> str:
        """The host of `bootstrap_servers`."""
        return _host(self.bootstrap_servers)

    @property
    def port(self) -> int:
        """The port of `bootstrap_servers`."""
        return _port(self.bootstrap_servers)

    @property
    def native_host(self) -> str:
        """The host of `native_address`."""
        return _host(self.native_address)

    @property
    def native_port(self) -> int:
        """The port of `native_address`."""
        return _port(self.native_address)

    @property
    def admin_host(self) -> str:
        """The host of `admin_url`."""
        return _host(self.addresses["admin"])

    @property
    def admin_port(self) -> int:
        """The port of `admin_url`."""
        return _port(self.addresses["admin"])

    def fail(
        self, api: str, *, error: str, calls: int = 1, topic: str | None = None, client_id: str | None = None
    ) -> None:
        """Answers the next requests of an API with an error; they have no effect.

        The error is at each place that the answer has for one: each partition of a Produce, for example.

        Args:
            api: Kafka's name of the API, `Produce` or `ListOffsets`.
            error: Kafka's name of the error, `NOT_LEADER_OR_FOLLOWER`.
            calls: the number of requests.
            topic: only requests that name this topic count; their other topics get the error, too.
            client_id: only requests of clients with this `client.id` count.

        Raises:
            ValueError: there is no such API or error.
        """
        self._add(api=api, error=error, calls=calls, seconds=0.0, topic=topic, client_id=client_id)

    def delay(
        self, api: str, *, seconds: float, calls: int = 1, topic: str | None = None, client_id: str | None = None
    ) -> None:
        """Handles the next requests of an API after a delay, as a slow broker does.

        Later requests of the same connection wait, too. A request whose client has given up is still handled.

        Args:
            api, calls, topic, client_id: as for `fail`.
            seconds: from the arrival of the request on, at most an hour.

        Raises:
            ValueError: there is no such API.
        """
        self._add(api=api, error=None, calls=calls, seconds=seconds, topic=topic, client_id=client_id)

    def heal(self) -> None:
        """Forgets the faults that are not used up."""
        self._ask(clear=True)

    @property
    def faults_left(self) -> int:
        """The number of requests that `fail` and `delay` still wait for; 0 once all are used up."""
        return self._ask()

    def _add(self, **fault: object) -> None:
        self._ask(**fault)

    def _ask(self, **request: object) -> int:
        assert not self._paused, "the broker is paused: call resume() first"
        answer: dict[str, Any] = self._running_daemon().ask(request)
        if "problem" in answer:
            raise ValueError(answer["problem"])
        left: int = answer["left"]
        return left


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
