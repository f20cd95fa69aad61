"""The page in a real Chromium, with live data, a rebalance and a broker restart."""

import pytest

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.dashboard import dashboard
from asyncconsumer.testing.servers import Kafka
from asyncconsumer.web.server import serving
from tests.support.chromium import Tab, chromium, find_browser
from tests.support.helpers import until

BROWSER = find_browser()
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="there is no Chromium on PATH; install it to run the page in it"
)
GROUP = "<img src=x onerror=document.title='broken'>"


async def colors(tab: Tab) -> set[str]:
    """Return the classes of the partitions in the map of owners."""
    script = "[...document.querySelectorAll('.cell')].map(cell => cell.className.split(' ')[1])"
    return set(await tab.evaluate(script))


async def test_the_page_survives_a_rebalance_and_a_broker_restart() -> None:
    assert BROWSER is not None
    async with Kafka() as server:
        (broker,) = server.brokers.values()
        await server.admin.create_topic("orders", partitions=4, replication_factor=1)
        site = dashboard(server.bootstrap_servers, interval=0.2)

        def member(name: str) -> Consumer:
            return Consumer(
                "orders",
                group_id=GROUP,
                client_id=name,
                bootstrap_servers=server.bootstrap_servers,
                heartbeat_interval_ms=300,
            )

        async with (
            serving(site, "127.0.0.1", 0, before_stop=site.close) as port,
            chromium(BROWSER) as tab,
        ):
            await tab.size(390, 844, phone=True)
            await tab.open(f"http://127.0.0.1:{port}/")
            await tab.wait_text("#link", "Live")
            async with member("first") as first:
                await first.wait_assigned()
                await first.commit({TopicPartition("orders", 0): 0})  # so that the group stays
                await tab.wait_text("#members", "first")
                await tab.wait_text("#groups", GROUP)  # as text
                assert await colors(tab) == {"m0"}
                async with member("second") as second:
                    await second.wait_assigned()
                    await tab.wait_text("#members", "second")

                    async def has_two_colors() -> bool:
                        return await colors(tab) == {"m0", "m1"}

                    await until(has_two_colors)
                    await tab.wait_text("#timeline", "+1 joined")
                await tab.wait_text("#timeline", "−1 gone")
            await broker.stop()
            await tab.wait_text("#link", "Unreachable")
            await tab.wait_text("#banner", "Kafka is not reachable")
            assert GROUP in await tab.text("#timeline")  # a stopping broker lists no groups
            await broker.start()
            await tab.wait_text("#link", "Live")
            await tab.wait_text("#groups", GROUP)
            for scheme in ("light", "dark"):
                await tab.scheme(scheme)
                await tab.wait_value("document.documentElement.dataset.theme", scheme)
            width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert await tab.evaluate(width) == 0
            assert await tab.evaluate("document.title") == "Kafka groups"
            assert tab.problems == []


async def test_the_page_reconnects_after_a_restart_of_the_server() -> None:
    assert BROWSER is not None
    async with chromium(BROWSER) as tab:
        site = dashboard("127.0.0.1:1", interval=0.2)
        async with serving(site, "127.0.0.1", 0, before_stop=site.close) as port:
            await tab.open(f"http://127.0.0.1:{port}/")
            await tab.wait_text("#link", "Unreachable")
        await tab.wait_text("#link", "Disconnected")
        site = dashboard("127.0.0.1:1", interval=0.2)
        async with serving(site, "127.0.0.1", port, before_stop=site.close):
            await tab.wait_text("#link", "Unreachable")
