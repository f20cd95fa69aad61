"""A real Chromium, driven by its DevTools protocol."""

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.helpers import until

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
)


def find_browser() -> str | None:
    """Return the path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


class Tab:
    """A page in the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.problems: list[str] = []  # exceptions, failed policies and error messages

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.send_str(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads((await self._socket.receive()).data)
            if message.get("id") == number:
                assert "error" not in message, message["error"]
                return dict(message["result"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        match message:
            case {"method": "Runtime.exceptionThrown", "params": {"exceptionDetails": details}}:
                self.problems.append(str(details))
            case {"method": "Log.entryAdded", "params": {"entry": {"level": "error"} as entry}}:
                if entry.get("source") != "network":  # except for an unreachable server
                    self.problems.append(entry["text"])

    async def open(self, url: str) -> None:
        for domain in ("Runtime", "Log", "Page"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)

    async def size(self, width: int, height: int, *, phone: bool = False) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    async def scheme(self, name: str) -> None:
        """Set the color scheme of the system, light or dark."""
        feature = {"name": "prefers-color-scheme", "value": name}
        await self.call("Emulation.setEmulatedMedia", features=[feature])

    async def evaluate(self, expression: str) -> Any:
        result = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def wait_value(self, expression: str, value: object) -> None:
        """Wait until an expression has this value."""

        async def has_value() -> bool:
            return bool(await self.evaluate(expression) == value)

        await until(has_value)

    async def text(self, selector: str) -> str:
        text = await self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText")
        return str(text or "")

    async def wait_text(self, selector: str, text: str) -> None:
        """Wait until an element has this text."""

        async def is_shown() -> bool:
            return text in await self.text(selector)

        await until(is_shown)

    async def screenshot(self, path: Path, *, whole: bool = False) -> None:
        result = await self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(result["data"]))


@asynccontextmanager
async def chromium(browser: str) -> AsyncIterator[Tab]:
    """Run a browser with a new profile, and yield its page."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [browser, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port_file = Path(profile, "DevToolsActivePort")
            await until(lambda: port_file.exists() and "\n" in port_file.read_text())
            port = port_file.read_text().split()[0]
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                async with session.get("/json/list") as answer:
                    (page,) = [each for each in await answer.json() if each["type"] == "page"]
                async with session.ws_connect(
                    page["webSocketDebuggerUrl"], max_msg_size=2**27
                ) as socket:
                    yield Tab(socket)
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait, 20)
