"""The topics that a replay reads."""

import pytest

from asyncconsumer import ConfigError, ConsumerApp, Record
from asyncconsumer.handlers.replay import replay
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.helpers import until
from tests.support.real_apps import make_app, read, send

pytestmark = pytest.mark.fast


class Shop:
    """An app whose handler fails for the values in `bad`."""

    def __init__(self, kafka: KafkaHandle, topic: str, dead: str) -> None:
        self.kafka, self.topic, self.dead, self.group = kafka, topic, dead, kafka.group()
        self.bad = {b"1", b"3"}
        self.seen: list[Record] = []

    def app(self) -> ConsumerApp:
        app = make_app(self.kafka, group_id=self.group)

        @app.handler(self.topic, dead_letter_topic=self.dead)
        async def sell(record: Record) -> None:
            if record.value in self.bad:
                raise ValueError(record.value)
            self.seen.append(record)

        return app

    async def until_seen(self, count: int) -> None:
        async with self.app():
            await until(lambda: len(self.seen) == count)


@pytest.fixture
async def shop(kafka: KafkaHandle) -> Shop:
    shop = Shop(kafka, await kafka.topic(partitions=2), await kafka.topic())
    await send(kafka, shop.topic, range(5), keys=2)
    async with shop.app():
        await read(kafka, shop.dead, 2)
        await until(lambda: len(shop.seen) == 3)
    return shop


@pytest.mark.parametrize(
    ("topic", "reads"),
    [("named", True), ("shop.eu", True), ("a.shop", False), ("__consumer_offsets", False)],
)
def test_an_app_knows_which_topics_it_reads(topic: str, reads: bool) -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")

    async def handle(record: Record) -> None: ...

    app.handler("named")(handle)
    app.handler(pattern=r"shop\..*|__.*")(handle)
    assert app.reads(topic) is reads


async def test_replay_without_a_dead_letter_topic_is_refused() -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g")
    with pytest.raises(ConfigError, match="no handler of this app has a `dead_letter_topic`"):
        await replay(app, send=True)
