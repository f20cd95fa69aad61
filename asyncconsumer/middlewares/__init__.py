"""Middlewares for handlers: limits, deduplication, a circuit breaker, logs, CloudEvents."""

from asyncconsumer.middlewares.circuit_breaker import CircuitBreaker
from asyncconsumer.middlewares.cloud_events import CloudEvents
from asyncconsumer.middlewares.deduplicate import Deduplicate
from asyncconsumer.middlewares.deduplication_stores import (
    DeduplicationStore,
    MemoryStore,
    RedisStore,
    SqliteStore,
)
from asyncconsumer.middlewares.rate_limit import RateLimit
from asyncconsumer.middlewares.structured_logging import StructuredLogging
from asyncconsumer.middlewares.timeout import Timeout
from asyncconsumer.middlewares.tracing import Tracing

__all__ = [
    "CircuitBreaker",
    "CloudEvents",
    "Deduplicate",
    "DeduplicationStore",
    "MemoryStore",
    "RateLimit",
    "RedisStore",
    "SqliteStore",
    "StructuredLogging",
    "Timeout",
    "Tracing",
]
