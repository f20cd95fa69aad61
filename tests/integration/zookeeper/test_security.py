"""TLS, SASL and digest users on a real server, and no secret in any message."""

import asyncio
import ssl
from collections.abc import Iterator

import pytest
import trustme

from asyncconsumer.errors import AuthFailed, NoAuth, ZooKeeperUnavailable
from asyncconsumer.testing.proxy import TcpProxy
from asyncconsumer.testing.servers import ZooKeeper
from asyncconsumer.testing.servers.listeners import PASSWORDS
from asyncconsumer.testing.servers.ports import HOST
from tests.support.helpers import until
from tests.support.zookeeper_sessions import LONG, session

ALICE, BOB = (f"{user}:{PASSWORDS[user]}" for user in ("alice", "bob"))


@pytest.fixture(scope="module")
def secure() -> Iterator[ZooKeeper]:
    zookeeper = ZooKeeper(secure=True)
    with asyncio.Runner() as runner:
        runner.run(zookeeper.start())
    yield zookeeper
    with asyncio.Runner() as runner:
        runner.run(zookeeper.stop())


def tls(secure: ZooKeeper) -> str:
    return f"{HOST}:{secure.nodes[0].tls_port}"


async def test_a_session_over_tls_writes_and_reads(secure: ZooKeeper) -> None:
    context = secure.certificates.client_context()
    async with session(tls(secure), ssl_context=context) as zk:
        await zk.create("/tls", b"x" * 500_000)
        assert len((await zk.get("/tls")).data or b"") == 500_000


async def test_a_server_certificate_of_an_unknown_authority_is_refused(secure: ZooKeeper) -> None:
    stranger = ssl.create_default_context()
    trustme.CA().configure_trust(stranger)
    with pytest.raises(ZooKeeperUnavailable, match="its certificate is refused"):
        async with session(tls(secure), ssl_context=stranger, connection_timeout_ms=500):
            pytest.fail("opened")


async def test_tls_and_plaintext_are_distinguished(secure: ZooKeeper) -> None:
    with pytest.raises(ZooKeeperUnavailable, match=r"answers in TLS|closed the connection"):
        async with session(tls(secure), connection_timeout_ms=500):
            pytest.fail("opened")
    context = secure.certificates.client_context()
    with pytest.raises(ZooKeeperUnavailable, match="no session with ZooKeeper"):
        async with session(secure.connect, ssl_context=context, connection_timeout_ms=500):
            pytest.fail("opened")


@pytest.mark.parametrize("way", ["auth", "sasl"])
async def test_a_session_keeps_its_user_after_a_reconnect(secure: ZooKeeper, way: str) -> None:
    path = f"/{way}"
    async with TcpProxy(HOST, secure.nodes[0].port) as proxy, asyncio.timeout(20):
        alice = session(
            proxy.address, session_timeout_ms=LONG, zookeeper_set_acl=True, **{way: ALICE}
        )
        async with alice, session(secure.connect, **{way: BOB}) as bob:
            await alice.create(path, b"mine")
            proxy.cut()
            await until(lambda: not alice.connected.is_set())
            assert (await alice.get(path)).data == b"mine"
            with pytest.raises(NoAuth):
                await bob.get(path)


async def test_a_wrong_sasl_password_is_refused_and_not_shown(
    secure: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(AuthFailed) as caught:
        async with session(secure.connect, sasl="alice:wr0ng", connection_timeout_ms=2_000):
            pytest.fail("opened")
    assert "wr0ng" not in str(caught.value) + caplog.text


async def test_no_repr_or_log_contains_a_secret(
    secure: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with (
        TcpProxy(HOST, secure.nodes[0].port) as proxy,
        session(proxy.address, auth=ALICE, sasl=ALICE) as zk,
    ):
        for _ in range(3):
            proxy.reset()
            await until(lambda: not zk.connected.is_set())
            await zk.connected.wait()
        shown = f"{zk.config!r} {zk.config} {zk!r} {zk._connection!r}"
    assert PASSWORDS["alice"] not in shown + caplog.text
