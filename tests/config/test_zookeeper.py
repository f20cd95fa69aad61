"""Options for ZooKeeper: accepted and refused values, and secrets that are not shown."""

import ssl
from typing import Any

import pytest

from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.errors import ConfigError
from asyncconsumer.types import Address

pytestmark = pytest.mark.fast

SECRET = "correct-horse"


@pytest.mark.parametrize(
    ("connect", "addresses", "chroot"),
    [
        ("zk", [("zk", 2181)], ""),
        ("a:1,b:2", [("a", 1), ("b", 2)], ""),
        ("a:1,b/kafka", [("a", 1), ("b", 2181)], "/kafka"),
        (" a:1 , a:1/one/two/ ", [("a", 1)], "/one/two"),
        ("[::1]:2182/", [("::1", 2182)], ""),
    ],
)
def test_a_connection_string_is_parsed(
    connect: str, addresses: list[tuple[str, int]], chroot: str
) -> None:
    config = ZooKeeperConfig(zookeeper_connect=connect)
    assert config.addresses == tuple(Address(*address) for address in addresses)
    assert config.chroot == chroot


@pytest.mark.parametrize(
    "connect",
    ["", "/kafka", "zk:0", "zk:x", "zk:1/a//b", "zk:1/..", "zk:1/a/./b", "zk:1/a\nb", None,
     ["zk:1"], "zk:1/a,other:2/../x"],
)  # fmt: skip
def test_an_invalid_connection_string_is_reported(connect: Any) -> None:
    with pytest.raises(ConfigError, match="zookeeper_connect"):
        ZooKeeperConfig(zookeeper_connect=connect)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"session_timeout_ms": 0}, "`session_timeout_ms` must be a whole number from 100"),
        ({"session_timeout_ms": "6000"}, "session_timeout_ms"),
        ({"connection_timeout_ms": 0}, "connection_timeout_ms"),
        ({"max_frame_bytes": 10}, "max_frame_bytes"),
        ({"auth": SECRET}, "`auth` must be 'user:password'"),
        ({"auth": b"alice:" + SECRET.encode()}, "`auth` must be 'user:password'"),
        ({"sasl": "alice:"}, "`sasl` must be 'user:password'"),
        ({"zookeeper_set_acl": True}, "`zookeeper_set_acl` needs `zookeeper_auth`"),
        ({"ssl_context": False}, "must be an ssl.SSLContext"),
        ({"ssl_context": "tls"}, "must be an ssl.SSLContext"),
        ({"zookeeper_set_acl": ""}, "`zookeeper_set_acl` must be True or False"),
    ],
)
def test_invalid_options_are_reported(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        ZooKeeperConfig(zookeeper_connect="zk", **options)
    assert SECRET not in str(caught.value)


def test_no_secret_is_shown() -> None:
    config = ZooKeeperConfig(
        zookeeper_connect="zk",
        auth=f"alice:{SECRET}",
        sasl=f"alice:{SECRET}",
        ssl_context=ssl.create_default_context(),
    )
    assert SECRET not in f"{config!r} {config}"
