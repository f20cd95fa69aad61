"""Connections on uvloop, which has its own transports."""

import ssl

import pytest
import trustme
import uvloop

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import CertificateRefused, ConnectionLost
from asyncconsumer.net.connect import open_connection
from asyncconsumer.protocol.messages import FetchPartition, FetchRequest, FetchTopic
from tests.support.scripted_broker import Line, broker

pytestmark = pytest.mark.fast

FETCH = FetchRequest(
    {FetchTopic("t"): [FetchPartition(0, 0, 100)]}, max_wait_ms=0, min_bytes=0, max_bytes=100
)
BODY = bytes(range(256)) * 4000


async def play(line: Line) -> None:
    await line.greet()
    line.answer(await line.asked(), BODY)
    await line.asked()


@pytest.mark.parametrize("encrypted", [False, True])
def test_connections_work_on_uvloop(encrypted: bool) -> None:
    authority = trustme.CA()
    served, trusting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), None
    authority.issue_cert("127.0.0.1").configure_cert(served)
    if encrypted:
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)

    async def check() -> None:
        async with broker(play, ssl=served if encrypted else None) as address:
            config = ConnectionConfig(
                bootstrap_servers=str(address),
                security_protocol="SSL" if encrypted else "PLAINTEXT",
                ssl_context=trusting,
            )
            connection = await open_connection(address, config)
            assert (await connection.send_raw(FETCH)).body.tobytes() == BODY
            with pytest.raises(ConnectionLost):
                await connection.send_raw(FETCH)
            await connection.wait_closed()

    uvloop.run(check())


def test_a_refused_certificate_is_reported_on_uvloop() -> None:
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(served)

    async def check() -> None:
        async with broker(play, ssl=served) as address:
            config = ConnectionConfig(
                bootstrap_servers=str(address),
                security_protocol="SSL",
                ssl_context=ssl.create_default_context(),
            )
            with pytest.raises(CertificateRefused):
                await open_connection(address, config)

    uvloop.run(check())
