"""`RedisStore` with a client of redis-py and a real server, if redis-server is installed."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from asyncconsumer import ConsumerApp, Record
from asyncconsumer.middlewares import Deduplicate, RedisStore
from tests.support.helpers import until

SERVER = shutil.which("redis-server")

pytestmark = pytest.mark.skipif(
    SERVER is None, reason="redis-server is not installed (Debian: apt-get install redis-server)"
)


@asynccontextmanager
async def redis(folder: Path) -> AsyncIterator[Redis]:
    """Return an async context manager of a client, and of the server that it uses."""
    assert SERVER is not None
    socket = folder / "redis.sock"
    server = await asyncio.create_subprocess_exec(
        *(SERVER, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        async with Redis(unix_socket_path=str(socket)) as client:
            await until(lambda: _answers(client), 10)
            yield client
    finally:
        server.terminate()
        await server.wait()


async def _answers(client: Redis) -> bool:
    with suppress(RedisConnectionError):
        return bool(await client.ping())
    return False


async def test_keys_expire(tmp_path: Path) -> None:
    async with redis(tmp_path) as client:
        store = RedisStore(client, prefix="shop:")
        assert not await store.contains("a")
        await store.add("a", 60)
        await store.add("b", 0.001)
        assert await store.contains("a")
        assert 0 < await client.pttl("shop:a") <= 60_000
        await until(lambda: _is_gone(store, "b"), 10)
        assert await client.keys() == [b"shop:a"]


async def _is_gone(store: RedisStore, key: str) -> bool:
    return not await store.contains(key)


async def test_members_with_one_store_skip_each_others_duplicates(tmp_path: Path) -> None:
    seen: list[bytes | None] = []

    async def handle(record: Record) -> None:
        seen.append(record.value)

    def member(client: Redis) -> ConsumerApp:
        deduplicate = Deduplicate(
            lambda record: (record.key or b"").decode(),
            window=timedelta(hours=1),
            store=RedisStore(client),
        )
        app = ConsumerApp(bootstrap_servers="kafka:9092", group_id="g", middlewares=[deduplicate])
        app.handler("orders")(handle)
        return app

    async with redis(tmp_path) as client:
        for records in ({"1": "ann", "2": "ann", "3": "bob"}, {"4": "bob", "5": "eve"}):
            async with member(client).testing() as kafka:
                for value, key in records.items():
                    await kafka.send("orders", value, key=key)
                await kafka.settled()
    assert seen == [b"1", b"3", b"5"]
