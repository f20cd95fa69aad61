"""ZooKeeper from its Maven jars: one server, or an ensemble of three."""

import asyncio
import re
import struct
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.errors import AdminFailed, UnknownVersion
from asyncconsumer.testing.servers.java import LOGGING, find_java, java_command
from asyncconsumer.testing.servers.listeners import PASSWORDS, Certificates
from asyncconsumer.testing.servers.node import Node, Servers
from asyncconsumer.testing.servers.ports import HOST
from asyncconsumer.testing.servers.process import ServerProcess, together

DEFAULT_ZOOKEEPER: Final = "3.9.4"

# jars that the server needs and its POM does not name
_EXTRAS: Final = (
    "io.dropwizard.metrics:metrics-core:4.1.12.1",
    "org.xerial.snappy:snappy-java:1.1.10.5",
)
_CONNECT_REQUEST: Final = struct.Struct(
    ">iiqiqi16sb"
)  # length, version, zxid, timeout, session ...
_CLOSE_REQUEST: Final = struct.Struct(">iii")  # length, xid, opcode
_CLOSE_SESSION: Final = -11


class ZooKeeperNode(Node):
    """A server of a ZooKeeper ensemble."""

    def __init__(self, process: ServerProcess, port: int, tls_port: int = 0) -> None:
        super().__init__(process)
        self.port = port
        self.tls_port = tls_port  # of a secure ensemble

    def __repr__(self) -> str:
        return f"<{self.process.name} on {self.address}, {self.process.state}>"

    @property
    def address(self) -> str:
        """The `host:port` for clients."""
        return f"{HOST}:{self.port}"

    async def mode(self) -> str:
        """Return `standalone`, `leader`, `follower`, or `down` if the server does not respond."""
        try:
            async with asyncio.timeout(2), _connection(self.port) as (reader, writer):
                writer.write(b"srvr")
                answer = (await reader.read()).decode()
        except (OSError, TimeoutError):
            return "down"
        match = re.search(r"^Mode: (\w+)", answer, re.MULTILINE)
        return match[1] if match else "down"

    async def is_serving(self) -> bool:
        """Return whether the server is part of a quorum and answers clients."""
        return await self.mode() != "down"


class ZooKeeper(Servers):
    """An ensemble of 1 or 3 servers: `async with ZooKeeper() as zookeeper: zookeeper.connect`.

    A `secure` ensemble also listens with TLS, for clients that trust `certificates`, and accepts
    SASL logins (DIGEST-MD5) of the users in `listeners.PASSWORDS`.
    """

    def __init__(
        self,
        version: str = DEFAULT_ZOOKEEPER,
        *,
        nodes: int = 1,
        port: int | None = None,
        tick_ms: int = 500,
        secure: bool = False,
        progress: maven.Progress = maven.no_progress,
    ) -> None:
        super().__init__()
        self._certificates: Certificates | None = None
        if nodes not in (1, 3):
            raise ConfigError(f"nodes={nodes}: an ensemble has 1 or 3 nodes")
        if not re.fullmatch(r"3\.[5-9]\.\d+", version):
            raise UnknownVersion(f"ZooKeeper {version} is not supported: take 3.5.x to 3.9.x")
        self.version = version
        self.nodes: list[ZooKeeperNode] = []
        self._count = nodes
        self._wanted_port = port
        self._tick_ms = tick_ms
        self._secure = secure
        self._progress = progress

    @property
    def connect(self) -> str:
        """The connection string, `host:port,...`."""
        return ",".join(node.address for node in self.nodes)

    @property
    def certificates(self) -> Certificates:
        """The certificates that clients of a secure ensemble need."""
        if self._certificates is None:
            raise ConfigError("certificates: start a ZooKeeper(secure=True) first")
        return self._certificates

    @property
    def title(self) -> str:
        """The name and the version of the server, such as ``ZooKeeper 3.9.3``."""
        return f"ZooKeeper {self.version}"

    async def fetch(self, progress: maven.Progress = maven.no_progress) -> list[Path]:
        """Return the jars of the server. Download them if they are not cached."""
        coordinates = (LOGGING, f"org.apache.zookeeper:zookeeper:{self.version}", *_EXTRAS)
        return await maven.class_path(self.title, coordinates, progress)

    async def start(self) -> None:
        """Start all servers and wait for the quorum. A failure stops all of them."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        java = find_java(oldest=11)
        jars = await self.fetch(self._progress)
        self._folder = Path(tempfile.mkdtemp(prefix="asyncconsumer-zookeeper-"))
        ports = [
            self._ports.take(None if self._wanted_port is None else self._wanted_port + n)
            for n in range(self._count)
        ]
        peers = [(self._ports.take(), self._ports.take()) for _ in ports] if self._count > 1 else []
        if self._secure:
            self._certificates = Certificates(self._folder / "certificates")
        for number, port in enumerate(ports, start=1):
            folder = self._folder / f"node-{number}"
            tls_port = self._ports.take() if self._secure else 0
            config = _write_config(folder, number, port, peers, self._tick_ms)
            flags = _secure(config, tls_port, self.certificates) if self._secure else []
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            command = java_command(java, jars, main, str(config), heap="256m")
            command[1:1] = flags
            process = ServerProcess(f"ZooKeeper node {number}", command, folder, self._folder)
            self.nodes.append(ZooKeeperNode(process, port, tls_port))
        await together(*(node.start() for node in self.nodes))

    def _members(self) -> list[ZooKeeperNode]:
        return self.nodes

    def _forget(self) -> None:
        self.nodes.clear()

    async def leader(self) -> ZooKeeperNode:
        """Return the leader of the ensemble, or the standalone server."""
        for node in self.nodes:
            if await node.mode() in ("leader", "standalone"):
                return node
        raise AdminFailed("the ZooKeeper ensemble has no leader")

    async def expire_session(self, session_id: int, password: bytes) -> None:
        """End the session of a client, as if it had expired.

        Open a second connection with the session's id and password, and close the session through
        it. ZooKeeper drops the connection of the client, and reports the expiry when the client
        reconnects.
        """
        node = await self.leader()
        async with asyncio.timeout(10), _connection(node.port) as (reader, writer):
            writer.write(
                _CONNECT_REQUEST.pack(45, 0, 0, 10_000, session_id, 16, password, 0)
                + _CLOSE_REQUEST.pack(8, 1, _CLOSE_SESSION)
            )
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            _, _, taken_over = struct.unpack_from(">iiq", await reader.readexactly(length))
            if taken_over != session_id:
                raise AdminFailed(
                    f"ZooKeeper does not know session 0x{session_id:x} with that password: "
                    "it has expired already, or never existed"
                )
            await reader.read()  # the server closes the connection after the session has ended


def _write_config(
    folder: Path, number: int, port: int, peers: Sequence[tuple[int, int]], tick_ms: int
) -> Path:
    data = folder / "data"
    data.mkdir(parents=True)
    (data / "myid").write_text(str(number))
    settings = {
        "dataDir": data,
        "clientPort": port,
        "clientPortAddress": HOST,
        "tickTime": tick_ms,
        "initLimit": 40,
        "syncLimit": 20,
        "minSessionTimeout": 2 * tick_ms,
        "maxSessionTimeout": 60_000,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "*",
        "forceSync": "no",
        **{f"server.{n}": f"{HOST}:{a}:{b}" for n, (a, b) in enumerate(peers, start=1)},
    }
    config = folder / "zoo.cfg"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return config


def _secure(config: Path, tls_port: int, certificates: Certificates) -> list[str]:
    """Add TLS and SASL to the configuration file `config`. Return the Java flags that they need."""
    settings = {
        "secureClientPort": tls_port,
        "secureClientPortAddress": HOST,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": certificates.broker_file(HOST),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": certificates.authority_file,
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "none",
        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    }
    with config.open("a") as more:
        more.writelines(f"{name}={value}\n" for name, value in settings.items())
    users = "".join(f' user_{user}="{word}"' for user, word in PASSWORDS.items())
    login = config.with_name("jaas.conf")
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    login.write_text(f"Server {{ {module} required{users}; }};\n")
    return [f"-Djava.security.auth.login.config={login}"]


@asynccontextmanager
async def _connection(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        yield reader, writer
    finally:
        writer.close()
