"""A TCP proxy before a broker, which can cut a connection at a request, hold the request back and send it later, as a
network does whose packets outlive their connection. It reads where requests begin and which they are, nothing else."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.kafka.broker import HOST, PATIENCE, Broker, _free_port

# What requests are called in Kafka's protocol.
PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 0, 22, 24, 25, 26, 28
TRANSACTIONAL = (ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT)

# What may be done with a request: let it pass; lose it and the connection; let the broker have it, and lose the answer
# and the connection.
PASS, LOSE, LOSE_ANSWER = "pass", "lose", "lose the answer"
Rule = Callable[[int, bytes], str]


def pass_all(api: int, frame: bytes) -> str:
    return PASS


class ProxiedBroker(Broker):
    """A broker with a second door, to which clients come by a proxy; `proxied` is that one's address."""

    def __init__(self, directory: Path) -> None:
        with ExitStack() as held:
            door, outside = (_free_port(held) for _ in range(2))
        self.door = (HOST, door)
        self.outside = (HOST, outside)
        self.proxied = f"{HOST}:{outside}"
        super().__init__(directory)
        properties = self._properties.read_text()
        plain = f"PLAINTEXT://{self.bootstrap}"
        assert f"listeners={plain}," in properties
        properties = properties.replace(f"listeners={plain},", f"listeners={plain},PROXIED://{HOST}:{door},")
        self._properties.write_text(
            properties + f"advertised.listeners={plain},PROXIED://{self.proxied}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT\n"
            "inter.broker.listener.name=PLAINTEXT\n"
        )


class Proxy:
    """Passes requests on to a broker; `rule` is asked about each transactional one, and about what is produced."""

    def __init__(self, broker: ProxiedBroker) -> None:
        self._broker = broker
        self.rule: Rule = pass_all
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server(broker.outside, backlog=64)
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection(self._broker.door, PATIENCE)
                except OSError:
                    client.close()
                    continue
                for end in (client, broker):
                    end.settimeout(None)
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets |= {client, broker}
                muted = threading.Event()
                threading.Thread(target=self._requests, args=(client, broker, muted), daemon=True).start()
                threading.Thread(target=self._answers, args=(broker, client, muted), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, muted: threading.Event) -> None:
        with suppress(OSError):
            for api, frame in frames(client):
                does = self.rule(api, frame) if api in (PRODUCE, *TRANSACTIONAL) else PASS
                if does == LOSE:
                    break
                if does == LOSE_ANSWER:
                    muted.set()
                broker.sendall(frame)
        self._close(client)
        if not muted.is_set():
            self._close(broker)

    def _answers(self, broker: socket.socket, client: socket.socket, muted: threading.Event) -> None:
        with suppress(OSError):
            while data := broker.recv(65536):
                if muted.is_set():
                    break
                client.sendall(data)
        self._close(client)
        self._close(broker)

    def _close(self, end: socket.socket) -> None:
        self._sockets.discard(end)
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()

    def send(self, frame: bytes) -> bytes:
        """Send a request that was held back over a connection of its own; the broker's answer, without its length."""
        with socket.create_connection(self._broker.door, PATIENCE) as late:
            late.sendall(frame)
            (length,) = struct.unpack(">i", read_exactly(late, 4))
            return read_exactly(late, length)

    def close(self) -> None:
        self._listener.close()
        for end in list(self._sockets):
            self._close(end)


def frames(client: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Which request each is, and its bytes."""
    while True:
        length = read_exactly(client, 4)
        body = read_exactly(client, struct.unpack(">i", length)[0])
        yield struct.unpack_from(">h", body)[0], length + body


def read_exactly(end: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        data = end.recv(count - len(parts))
        if not data:
            raise ConnectionError("the other end has gone")
        parts += data
    return bytes(parts)


@contextmanager
def proxied(broker: ProxiedBroker) -> Iterator[Proxy]:
    proxy = Proxy(broker)
    try:
        yield proxy
    finally:
        proxy.close()
