"""The options of aiokafka's consumer, and their translation to those of `Consumer`."""

import asyncio
import ssl
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict

from aiokafka.abc import AbstractTokenProvider

_RENAMED: Final = {
    "metadata_max_age_ms": "metadata_refresh_ms",
    "retry_backoff_ms": "refresh_leader_backoff_ms",
}
_DEFAULTS: Final[Mapping[str, Any]] = {
    "bootstrap_servers": "localhost",
    "client_id": "asyncconsumer",
    "partition_assignment_strategy": ("roundrobin",),
    "session_timeout_ms": 10_000,
    "heartbeat_interval_ms": 3_000,
    "max_poll_interval_ms": 300_000,
    "allow_auto_create_topics": True,
}
_NO_MEANING: Final = ("loop", "api_version", "consumer_timeout_ms")
_HEARTBEATS_PER_SESSION: Final = 3
_GRACES_PER_REBALANCE: Final = 3


class AIOKafkaOptions(TypedDict, total=False):
    """The keyword arguments of `aiokafka.AIOKafkaConsumer`, with its names and meanings."""

    loop: object
    bootstrap_servers: str | Sequence[str]
    client_id: str
    group_id: str | None
    group_instance_id: str | None
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    fetch_min_bytes: int
    max_partition_fetch_bytes: int
    request_timeout_ms: int
    retry_backoff_ms: int
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    check_crcs: bool
    metadata_max_age_ms: int
    partition_assignment_strategy: Sequence[Any]
    max_poll_interval_ms: int
    rebalance_timeout_ms: int | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    consumer_timeout_ms: int
    ssl_context: ssl.SSLContext | None
    security_protocol: str
    api_version: str | None
    exclude_internal_topics: bool
    connections_max_idle_ms: int
    isolation_level: str
    sasl_mechanism: str
    sasl_plain_password: str | None
    sasl_plain_username: str | None
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_oauth_token_provider: AbstractTokenProvider | None
    client_rack: str | None


def consumer_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a `Consumer` that are equivalent to these options of aiokafka.

    Raise TypeError for unknown names.
    """
    unknown = sorted(options.keys() - AIOKafkaOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"AIOKafkaConsumer() got an unexpected keyword argument {unknown[0]!r}")
    meaningful = {name: value for name, value in options.items() if name not in _NO_MEANING}
    result = {
        **_DEFAULTS,
        **{_RENAMED.get(name, name): value for name, value in meaningful.items()},
    }
    session_ms = result["session_timeout_ms"]
    result["heartbeat_interval_ms"] = min(
        result["heartbeat_interval_ms"], session_ms // _HEARTBEATS_PER_SESSION
    )
    result["rebalance_timeout_ms"] = result.get("rebalance_timeout_ms") or session_ms
    # the rest is for noticing the rebalance, and for the listener
    result["revoke_grace_ms"] = result["rebalance_timeout_ms"] // _GRACES_PER_REBALANCE
    result["partition_assignment_strategy"] = [
        getattr(assignor, "name", assignor) for assignor in result["partition_assignment_strategy"]
    ]
    if result.get("group_id") is None:
        result.pop("group_instance_id", None)  # aiokafka ignores it, too
    if not str(result.get("security_protocol", "")).startswith("SASL"):
        result = {name: value for name, value in result.items() if not name.startswith("sasl_")}
    else:
        result.setdefault("sasl_mechanism", "PLAIN")
    return result


def given_loop(loop: object) -> asyncio.AbstractEventLoop:
    """Return the event loop of a consumer: the option `loop`, or the running loop."""
    if loop is None:
        return asyncio.get_running_loop()
    if not isinstance(loop, asyncio.AbstractEventLoop):
        raise TypeError("`loop` must be an event loop")
    warnings.warn("The option `loop` is deprecated, as in aiokafka", DeprecationWarning, 3)
    return loop


def plain_function(deserializer: Callable[[Any], Any] | None) -> Callable[[bytes], Any] | None:
    """Return a deserializer as a function of bytes, also if it is a class such as `str`."""
    if not isinstance(deserializer, type):
        return deserializer
    return lambda data: deserializer(data)
