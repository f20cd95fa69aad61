"""Screenshots of the dashboard with live data: `python -m tests.dashboard_screenshots FOLDER`.

Kafka runs on this machine. Members join and leave, and the broker is restarted.
"""

import asyncio
import sys
from pathlib import Path

from asyncconsumer.dashboard.sites import dashboard
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import Kafka
from asyncconsumer.web.server import serving
from tests.support.chromium import Tab, chromium, find_browser
from tests.support.dashboard_load import DashboardLoad, dashboard_load

TOPICS = {"orders": 12, "payments": 6, "clicks": 8, "orders.dlq": 2}
BUTTONS = "[...document.querySelectorAll('.groups button')]"
SELECT = f"{BUTTONS}.find(button => button.innerText == '{{name}}').click()"


async def start(load: DashboardLoad) -> None:
    for topic, partitions in TOPICS.items():
        await load.kafka.admin.create_topic(topic, partitions=partitions, replication_factor=1)
    load.write("orders", 12, 150)
    load.write("payments", 6, 60)
    load.write("clicks", 8, 100)
    await asyncio.sleep(3)
    await load.fail("payments", "orders.dlq", "payment-retries", 17)
    for number in (1, 2):
        load.join(f"billing-{number}", "billing", ["orders", "payments"], delay=0.008)
    load.join("analytics-1", "analytics", ["clicks"], "consumer")
    load.join("search-1", "search-index", ["orders"], "consumer", delay=0.05)


async def pictures(tab: Tab, load: DashboardLoad, folder: Path) -> None:
    (broker,) = load.kafka.server.brokers.values()
    await tab.wait_text("#link", "Live")
    await tab.wait_text("#groups", "billing")
    await asyncio.sleep(45)
    await tab.evaluate(SELECT.format(name="billing"))
    load.join("billing-3", "billing", ["orders", "payments"], delay=0.008)
    await tab.wait_text("#members", "billing-3")
    await tab.screenshot(folder / "rebalance-light.png")
    await tab.scheme("dark")
    await asyncio.sleep(8)
    load.members["billing-1"].leave()
    await asyncio.sleep(2)
    await tab.screenshot(folder / "rebalance-dark.png")
    await asyncio.sleep(6)
    await tab.screenshot(folder / "whole-dark.png", whole=True)
    await tab.scheme("light")
    await tab.screenshot(folder / "whole-light.png", whole=True)
    await tab.size(390, 844, phone=True)
    await asyncio.sleep(2)
    await tab.screenshot(folder / "phone-light.png", whole=True)
    await tab.scheme("dark")
    await tab.screenshot(folder / "phone-dark.png", whole=True)
    overflow = await tab.evaluate("document.documentElement.scrollWidth - innerWidth")
    print("overflow on a phone:", overflow)  # noqa: T201
    await tab.size(1440, 1000)
    await tab.scheme("light")
    await broker.stop()
    await tab.wait_text("#link", "Unreachable")
    await asyncio.sleep(5)
    await tab.screenshot(folder / "broker-away.png")
    await tab.size(390, 844, phone=True)
    await asyncio.sleep(1)
    await tab.screenshot(folder / "broker-away-phone.png")
    await tab.size(1440, 1000)
    await broker.start()
    await tab.wait_text("#link", "Live")
    await asyncio.sleep(12)
    await tab.screenshot(folder / "broker-back.png")
    print("problems:", tab.problems)  # noqa: T201


async def main(folder: Path) -> None:
    browser = find_browser()
    if browser is None:
        sys.exit("There is no Chromium on PATH. Install it first.")
    folder.mkdir(parents=True, exist_ok=True)
    server = Kafka()
    await server.start()
    try:
        handle = KafkaHandle(server, "screenshots")
        site = dashboard(server.bootstrap_servers)
        async with (
            serving(site, "127.0.0.1", 0, before_stop=site.close) as port,
            dashboard_load(handle) as load,
            chromium(browser) as tab,
        ):
            await start(load)
            await tab.size(1440, 1000)
            await tab.scheme("light")
            await tab.open(f"http://127.0.0.1:{port}/")
            await pictures(tab, load, folder)
    finally:
        await server.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
