"""An app whose handler takes for ever."""

import asyncio
import os
from pathlib import Path

from asyncconsumer import ConsumerApp

app = ConsumerApp(
    bootstrap_servers=os.environ["BROKERS"],
    group_id=os.environ["GROUP"],
    auto_offset_reset="earliest",
)


@app.handler(os.environ["TOPIC"])
async def work(value: bytes) -> None:
    Path(os.environ["STORE"]).touch()
    await asyncio.Event().wait()
