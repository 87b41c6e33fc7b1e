"""A real Apache Kafka, one node in KRaft mode on loopback, as a process of its own that can be stopped, killed and
started again on the same data and port."""

import os
import random
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.jars import jars

HOST = "127.0.0.1"
PATIENCE = 120.0
# How long a controller waits for a sign of life from its broker.
SESSION_MS = 4_000
# Below the ports that the system gives to outgoing connections: one of those could take ours between kill and restart.
PORTS = range(20_000, 32_000)
# Ends with the broker; and ends the broker when its own standard input does, so that no broker outlives a test run.
LEASH = """
exec 3<&0
"$@" </dev/null & pid=$!
echo $pid
{ read -r _ <&3; kill -9 $pid 2>/dev/null; } &
wait $pid
"""


class Server:
    """A process of Kafka's, with its data in `directory`."""

    classpath = "broker"

    def __init__(self, directory: Path, settings: Mapping[str, str], cluster: str) -> None:
        self.directory = directory
        self._properties = directory / "server.properties"
        directory.mkdir(parents=True, exist_ok=True)
        lines = {"log.dirs": str(directory / "data"), "controller.listener.names": "CONTROLLER", **settings}
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self._leash: subprocess.Popen[str] | None = None
        self._pid = 0
        self._format(cluster, settings)

    def _format(self, cluster: str, settings: Mapping[str, str]) -> None:
        first = ["--standalone"] if "controller" in settings["process.roles"] else []
        formatting = self._command("kafka.tools.StorageTool", "format", *first, "--cluster-id", cluster)
        done = subprocess.run([*formatting, "--config", str(self._properties)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"Kafka could not format {self.directory}:\n{done.stdout}{done.stderr}")

    def _command(self, main: str, *words: str) -> list[str]:
        java = shutil.which("java")
        if java is None:
            raise RuntimeError("The broker of the tests needs Java 17 or newer: install openjdk-17-jre-headless.")
        path = os.pathsep.join(map(str, jars(self.classpath)))
        return [java, "-Xmx512m", "-XX:+UseSerialGC", "-Dlog4j2.level=WARN", "-cp", path, main, *words]

    def launch(self) -> None:
        """Start the process, without waiting for it."""
        with (self.directory / "broker.log").open("a") as log:
            self._leash = subprocess.Popen(
                ["sh", "-c", LEASH, "leash", *self._command("kafka.Kafka", str(self._properties))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._leash.stdout is not None
        self._pid = int(self._leash.stdout.readline())

    @property
    def alive(self) -> bool:
        return self._leash is not None and self._leash.poll() is None

    def stop(self) -> None:
        """End it in order; its data stay."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with kill -9."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._leash is None:
            return
        if self.alive:
            os.kill(self._pid, how)
        with suppress(subprocess.TimeoutExpired):
            self._leash.wait(PATIENCE)
        # Letting go of the leash kills what is still there.
        self._leash.communicate()
        self._leash = None


class Broker(Server):
    """Kafka in `directory`, its own controller unless there is another; `settings` are the server's and come last."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str] | None = None, controller: "Controller | None" = None
    ) -> None:
        with ExitStack() as held:
            port, quorum = (_free_port(held) for _ in range(2))
        self.bootstrap = f"{HOST}:{port}"
        plain, alone = f"PLAINTEXT://{self.bootstrap}", f"CONTROLLER://{HOST}:{quorum}"
        lines = {
            "process.roles": "broker,controller" if controller is None else "broker",
            "node.id": "1",
            "listeners": f"{plain},{alone}" if controller is None else plain,
            "controller.quorum.bootstrap.servers": f"{HOST}:{quorum}" if controller is None else controller.address,
            "auto.create.topics.enable": "false",
            # Retention goes by the records' timestamps, and those of tests are from 1970.
            "log.retention.ms": "-1",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # A killed member's partitions come back after the session: 45 s on the defaults.
            "group.consumer.session.timeout.ms": "3000",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.heartbeat.interval.ms": "500",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.min.session.timeout.ms": "1000",
            "broker.heartbeat.interval.ms": "500",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        super().__init__(directory, lines, uuid.uuid4().hex[:22] if controller is None else controller.cluster)

    def start(self) -> "Broker":
        """Return when the broker answers."""
        self.launch()
        self._await_answer()
        return self

    def _await_answer(self) -> None:
        admin = self.admin()
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                admin.list_topics(timeout=1)
                return
            except KafkaException as error:
                if not self.alive or time.monotonic() > deadline:
                    state = "does not answer" if self.alive else "has ended"
                    self.kill()
                    log = (self.directory / "broker.log").read_text()[-4000:]
                    raise RuntimeError(f"The Kafka broker in {self.directory} {state}:\n{log}") from error

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, topic: str, partitions: int = 1, **settings: str) -> str:
        """Make a topic, settings with `_` for `.`, and return its name."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        new = NewTopic(topic, partitions, 1, config=config)
        admin = self.admin()
        admin.create_topics([new], operation_timeout=10)[topic].result()
        # The controller answers when it is decided, and its broker hears of it a moment later.
        deadline = time.monotonic() + PATIENCE
        while topic not in admin.list_topics(timeout=PATIENCE).topics:
            assert time.monotonic() < deadline, f"the broker does not know of {topic}"
            time.sleep(0.01)
        return topic

    def delete(self, topic: str) -> None:
        """Delete a topic, and return when the broker has heard of it."""
        admin = self.admin()
        admin.delete_topics([topic], operation_timeout=PATIENCE)[topic].result()
        deadline = time.monotonic() + PATIENCE
        while topic in admin.list_topics(timeout=PATIENCE).topics:
            assert time.monotonic() < deadline, f"the broker still knows of {topic}"
            time.sleep(0.01)

    def configure_group(self, group: str, setting: str) -> None:
        """Give a group a setting of its own, which the client cannot."""
        words = ("--bootstrap-server", self.bootstrap, "--alter", "--entity-type", "groups", "--entity-name", group)
        command = self._command("kafka.admin.ConfigCommand", *words, "--add-config", setting)
        subprocess.run(command, check=True, capture_output=True)

    def restart(self) -> None:
        """Stop in order, and start again on the same data and port."""
        self.stop()
        self.start()


class Controller(Server):
    """What knows which brokers there are, and who leads which partition."""

    classpath = "broker-4.2"

    def __init__(self, directory: Path) -> None:
        with ExitStack() as held:
            self.address = f"{HOST}:{_free_port(held)}"
        self.cluster = uuid.uuid4().hex[:22]
        lines = {
            "process.roles": "controller",
            "node.id": "100",
            "listeners": f"CONTROLLER://{self.address}",
            "controller.quorum.bootstrap.servers": self.address,
            "broker.session.timeout.ms": str(SESSION_MS),
        }
        super().__init__(directory, lines, self.cluster)


class RestartableBroker(Broker):
    """A broker to be restarted while transactions go on.

    One that is its own controller believes, when it starts again, that it leads its partitions, until it notices that
    it was away. The partitions have no leader then, and much is forgotten: the groups' members that have died
    meanwhile, and by Kafka 4.3 how transactions ended (KAFKA-20734). So this one has a controller that lives on, starts
    again only when that has given it up, and is of Kafka 4.2.
    """

    classpath = Controller.classpath

    def __init__(self, directory: Path) -> None:
        self._controller = Controller(directory / "controller")
        self._given_up_at = 0.0
        super().__init__(directory, controller=self._controller)

    def start(self) -> "RestartableBroker":
        if not self._controller.alive:
            self._controller.launch()
        time.sleep(max(0.0, self._given_up_at - time.monotonic()))
        super().start()
        return self

    def _end(self, how: signal.Signals) -> None:
        super()._end(how)
        self._given_up_at = time.monotonic() + 1.5 * SESSION_MS / 1000

    def close(self) -> None:
        """End all of it."""
        self.kill()
        self._controller.kill()


def _free_port(held: ExitStack) -> int:
    while True:
        try:
            found = held.enter_context(socket.socket())
            found.bind((HOST, port := random.choice(PORTS)))
            return port
        except OSError:
            continue
