"""Kafka from its Maven jars: 1 to 3 brokers on KRaft or ZooKeeper."""

import asyncio
import base64
import contextlib
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asyncconsumer.aiokafka_parts import KafkaError
from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.servers import maven, properties
from asyncconsumer.testing.servers.admin import Admin
from asyncconsumer.testing.servers.errors import ServerError, StartFailed, UnknownVersion
from asyncconsumer.testing.servers.java import LOGGING, find_java, java_command
from asyncconsumer.testing.servers.listeners import (
    INTERNAL,
    PASSWORDS,
    PROXIED,
    Certificates,
    Listener,
    client_settings,
)
from asyncconsumer.testing.servers.node import Node, Servers
from asyncconsumer.testing.servers.ports import HOST
from asyncconsumer.testing.servers.process import ServerProcess, together

if TYPE_CHECKING:
    import socket

DEFAULT_KAFKA: Final = "4.3.1"
LAST_WITH_ZOOKEEPER: Final = "3.9.2"


class Broker(Node):
    """A broker of a test cluster."""

    def __init__(
        self, node_id: int, process: ServerProcess, ports: Mapping[str, int], admin: Admin
    ) -> None:
        super().__init__(process)
        self.node_id = node_id
        self.ports = ports  # by listener name
        self._admin = admin

    def __repr__(self) -> str:
        return f"<broker {self.node_id} on {self.address()}, {self.process.state}>"

    def address(self, listener: Listener = INTERNAL) -> str:
        """Return the `host:port` of one of the broker's listeners."""
        try:
            return f"{HOST}:{self.ports[listener.name]}"
        except KeyError:
            raise ConfigError(
                f"the cluster has no listener {listener.name}: start it with listeners=[...]"
            ) from None

    async def leader_of(self, topic: str, partition: int) -> int:
        """Return the id of a partition's leader as this broker knows it, or -1 without a leader."""
        return await self._admin.leader(topic, partition)

    async def is_serving(self) -> bool:
        """Return whether the broker answers clients and lists itself among the live brokers."""
        try:
            return self.node_id in await self._admin.brokers(ask=self.node_id)
        except (KafkaError, OSError, TimeoutError):
            return False


class Kafka(Servers):
    """A Kafka cluster: `async with Kafka(brokers=3) as kafka: kafka.bootstrap_servers`.

    With `zookeeper`, a connection string such as `ZooKeeper.connect`, brokers of version 3.x use
    ZooKeeper mode. Otherwise the cluster uses KRaft. `listeners` adds secure listeners. `proxied`
    adds a listener for clients that connect through TCP proxies. `acls` enables authorization:
    users of SASL listeners may only do what `admin.allow` grants. `racks` puts broker 1 into
    "rack-1" and so on. With `full_jit`, Java optimizes the brokers fully, for measurements. Without
    it, TLS costs a broker six times more CPU time. The cluster is not bound to an event loop.
    """

    def __init__(
        self,
        version: str = DEFAULT_KAFKA,
        *,
        brokers: int = 1,
        zookeeper: str | None = None,
        listeners: Sequence[Listener] = (),
        proxied: bool = False,
        acls: bool = False,
        racks: bool = False,
        port: int | None = None,
        config: Mapping[str, str] | None = None,
        full_jit: bool = False,
        progress: maven.Progress = maven.no_progress,
    ) -> None:
        super().__init__()
        _check_version(version, zookeeper)
        if not 1 <= brokers <= 3:
            raise ConfigError(f"brokers={brokers}: a test cluster has 1 to 3 brokers")
        self.version = version
        self.brokers: dict[int, Broker] = {}
        self.proxy_listeners: dict[int, socket.socket] = {}
        self.plan = properties.Plan(
            cluster_id=_random_id(),
            brokers=brokers,
            zookeeper=zookeeper,
            listeners=(INTERNAL, *listeners, *([PROXIED] if proxied else [])),
            acls=acls,
            racks=racks,
            config=dict(config or {}),
        )
        self.certificates: Certificates | None = None
        self._wanted_port = port
        self._full_jit = full_jit
        self._progress = progress

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers of the unsecured listeners, `host:port,...`."""
        return self.addresses(INTERNAL)

    def addresses(self, listener: Listener) -> str:
        """Return the addresses of all brokers at one listener, `host:port,...`."""
        return ",".join(broker.address(listener) for broker in self.brokers.values())

    def client_settings(
        self, listener: Listener = INTERNAL, user: str = "alice"
    ) -> dict[str, object]:
        """Return the options with which aiokafka or asyncconsumer connects to a listener."""
        settings = client_settings(listener, self.certificates, user)
        return {"bootstrap_servers": self.addresses(listener), **settings}

    @property
    def admin(self) -> Admin:
        """The admin client for topics, partitions, leaders, users and permissions."""
        return Admin({node: broker.ports[INTERNAL.name] for node, broker in self.brokers.items()})

    @property
    def title(self) -> str:
        """The name and the version of the server, such as ``Kafka 4.3.1``."""
        return f"Kafka {self.version}"

    async def fetch(self, progress: maven.Progress = maven.no_progress) -> list[Path]:
        """Return the jars of the server. Download them if they are not cached."""
        coordinates = (LOGGING, f"org.apache.kafka:kafka_2.13:{self.version}")
        return await maven.class_path(self.title, coordinates, progress)

    async def start(self) -> None:
        """Start all brokers and wait until they know each other. A failure stops all of them."""
        try:
            await self._prepare()
            await together(*(broker.start() for broker in self.brokers.values()))
            await self.wait_until_whole()
            if any(listener.sasl_mechanism == "SCRAM-SHA-512" for listener in self.plan.listeners):
                for user, password in PASSWORDS.items():
                    await self.admin.set_scram_password(user, password)
        except BaseException:
            await self.stop()
            raise

    def _members(self) -> list[Broker]:
        return list(self.brokers.values())

    def _forget(self) -> None:
        self.brokers.clear()
        self.proxy_listeners.clear()

    async def wait_until_whole(self, timeout: float = 60.0) -> None:
        """Wait until every broker knows all others."""
        everyone = set(self.brokers)
        try:
            async with asyncio.timeout(timeout):
                for node in self.brokers:
                    while not await self._sees(node, everyone):
                        await asyncio.sleep(0.05)
        except TimeoutError:
            raise ServerError(
                f"the brokers do not all know each other after {timeout:.0f} s: {self.brokers}"
            ) from None

    async def heal(self) -> None:
        """Resume or restart every broker that was paused, stopped or killed."""
        for broker in self.brokers.values():
            if broker.process.state == "paused":
                broker.resume()
        down = [broker for broker in self.brokers.values() if not broker.process.running]
        await together(*(broker.start() for broker in down))
        await self.wait_until_whole()

    async def _sees(self, node: int, everyone: set[int]) -> bool:
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            return await self.admin.brokers(ask=node) == everyone
        return False

    async def _prepare(self) -> None:
        """Find Java, download jars, reserve ports, create folders, and format the storage."""
        newest = 23 if self.version.startswith("3.") else None  # Java 24 removed what 3.x needs
        java = find_java(oldest=17, newest=newest)
        jars = await self.fetch(self._progress)
        self._folder = Path(tempfile.mkdtemp(prefix="asyncconsumer-kafka-"))
        if any(listener.encrypted for listener in self.plan.listeners):
            self.certificates = Certificates(self._folder / "certificates")
        ports = [self._take_ports(node) for node in range(self.plan.brokers)]
        for number, own in enumerate(ports):
            node_id, folder = number + 1, self._folder / f"broker-{number + 1}"
            written = properties.write(self.plan, node_id, ports, folder, self.certificates)
            command = java_command(java, jars, "kafka.Kafka", str(written), full_jit=self._full_jit)
            process = ServerProcess(f"Kafka broker {node_id}", command, folder, self._folder)
            admin = Admin({node_id: own[INTERNAL.name]})
            self.brokers[node_id] = Broker(node_id, process, own, admin)
        if self.plan.zookeeper is None:
            await asyncio.to_thread(self._format, java, jars)

    def _take_ports(self, number: int) -> dict[str, int]:
        """Reserve ports for the listeners, the controller and the proxy of one broker."""
        ports = {}
        for listener in self.plan.listeners:
            port = self._wanted_port if listener is INTERNAL else None
            ports[listener.name] = self._ports.take(None if port is None else port + number)
        ports[properties.CONTROLLER] = self._ports.take()
        if PROXIED in self.plan.listeners:
            listening = self._ports.listen()
            self.proxy_listeners[number + 1] = listening
            ports[properties.PROXY] = listening.getsockname()[1]
        return ports

    def _format(self, java: Path, jars: Sequence[Path]) -> None:
        """Format the storage of the first broker, and copy it for the other brokers."""
        assert self._folder is not None
        first = self._folder / "broker-1"
        arguments = ("format", "-t", self.plan.cluster_id, "-c", str(first / properties.FILE))
        command = java_command(java, jars, "kafka.tools.StorageTool", *arguments)
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise StartFailed(f"Kafka {self.version} could not format its storage", ran.stderr)
        for node_id in range(2, self.plan.brokers + 1):
            data = self._folder / f"broker-{node_id}" / properties.DATA
            shutil.copytree(first / properties.DATA, data)
            identity = data / "meta.properties"
            text = re.sub(
                r"^node\.id=.*$", f"node.id={node_id}", identity.read_text(), flags=re.MULTILINE
            )
            text = re.sub(
                r"^directory\.id=.*$", f"directory.id={_random_id()}", text, flags=re.MULTILINE
            )
            identity.write_text(text)


def _random_id() -> str:
    """Return a random id in base64, without a dash at its start.

    Kafka's tools would take an id with a leading dash for an option.
    """
    written = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    return written if not written.startswith("-") else _random_id()


def _check_version(version: str, zookeeper: str | None) -> None:
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version)
    if match is None:
        raise UnknownVersion(f"{version!r} is not a Kafka version: give one like {DEFAULT_KAFKA}")
    release = int(match[1]), int(match[2])
    if release < (3, 7):
        raise UnknownVersion(f"Kafka {version} is not supported: take 3.7.0 or newer")
    if zookeeper is not None and release >= (4, 0):
        raise ConfigError(
            f"Kafka {version} has no ZooKeeper mode: take {LAST_WITH_ZOOKEEPER}, "
            "or leave zookeeper out"
        )
