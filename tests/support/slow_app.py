"""An app whose handler waits until a file exists."""

import asyncio
import os
from pathlib import Path

from asyncconsumer import ConsumerApp

STORE = Path(os.environ["STORE"])
app = ConsumerApp.from_env(auto_offset_reset="earliest")


@app.handler(os.environ["TOPIC"])
async def work(value: bytes) -> None:
    STORE.touch()
    while not STORE.with_name("enough").exists():
        await asyncio.sleep(0.02)
