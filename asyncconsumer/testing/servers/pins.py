"""The SHA-256 of every jar of the default server versions.

The hashes are part of this package, so a repository or mirror cannot replace a jar. After a change
of a default version, run `python -m asyncconsumer.testing.servers.pins`, which writes the hashes
again, and review the differences.
"""

import asyncio
import functools
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from asyncconsumer.testing.servers import maven

_FILE: Final = Path(__file__).with_name("pins.json")


def pinned_jars(name: str, coordinates: Sequence[str]) -> Mapping[str, str] | None:
    """Return the SHA-256 of each jar of the server `name`, by the jar's path in a repository.

    Return None if this package does not pin the jars of the server.
    """
    pin = _pins().get(name)
    if pin is None or pin["coordinates"] != list(coordinates):
        return None
    jars: dict[str, str] = pin["jars"]
    return jars


@functools.cache
def _pins() -> dict[str, Any]:
    pins: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return pins


async def _write() -> None:
    from asyncconsumer.testing import servers
    from asyncconsumer.testing.servers import classic

    _pins().clear()  # the jars that are resolved now become the pins
    with tempfile.TemporaryDirectory() as folder:
        os.environ[maven.CACHE_VARIABLE] = folder
        await servers.Kafka(servers.DEFAULT_KAFKA).fetch()
        await servers.Kafka(servers.LAST_WITH_ZOOKEEPER).fetch()
        await servers.ZooKeeper(servers.DEFAULT_ZOOKEEPER).fetch()
        await classic.fetch()
        names = {
            f"Kafka {servers.DEFAULT_KAFKA}",
            f"Kafka {servers.LAST_WITH_ZOOKEEPER}",
            f"ZooKeeper {servers.DEFAULT_ZOOKEEPER}",
            f"Kafka {classic.CLASSIC_KAFKA}",
        }
        pins = {
            name: json.loads(maven.manifest_of(Path(folder), name).read_text(encoding="utf-8"))
            for name in sorted(names)
        }
    _FILE.write_text(json.dumps(pins, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(_write())
