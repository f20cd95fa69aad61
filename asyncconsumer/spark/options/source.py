"""The options of the data source.

Their names and meanings are those of Spark's own Kafka source.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from asyncconsumer.config import nearest_name, parse_bool, parse_int
from asyncconsumer.errors import ConfigError
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.spark.options import protobuf_options
from asyncconsumer.spark.options.kafka import (
    PREFIX,
    is_property,
    kafka_properties,
    nearest_property,
)
from asyncconsumer.spark.options.selection import (
    SELECTIONS,
    Limit,
    OffsetBound,
    StartBound,
    TopicSelection,
    limit,
    selection,
)

_log: Final = logging.getLogger(__name__)

MODES: Final = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
VALUE_FORMATS: Final = ("json", "avro", "protobuf")
_DELAY: Final = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
_MINUTE: Final = 60_000
_UNITS: Final = {
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": _MINUTE,
    "min": _MINUTE,
    "h": 60 * _MINUTE,
    "d": 24 * 60 * _MINUTE,
}

_KNOWN: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "includeHeaders",
    "commitToGroup",
    "pushFilters",
    "recordsPerTask",
    "valueFormat",
    "valueSchema",
    "mode",
    *protobuf_options.OPTIONS,
    # accepted and ignored: options for Java's consumer, its pool and its group
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
)
_BATCH_ONLY: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "commitToGroup",
)
_GROUP_OPTIONS: Final = ("kafka.group.id", "groupIdPrefix")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The parsed options of one query as plain values, which Spark copies to every executor."""

    kafka: Mapping[str, str] = field(repr=False)  # contains passwords
    selection: TopicSelection
    starting: Limit
    ending: Limit
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    records_per_task: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * _MINUTE
    fail_on_data_loss: bool = True
    include_headers: bool = False
    commit_to_group: str | None = None
    push_filters: bool = False
    value_format: str | None = None
    value_schema: str | None = None
    protobuf: protobuf_options.ProtobufOptions | None = None
    mode: str = "PERMISSIVE"


def parse(raw: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Return the parsed options of one query. Raise `ConfigError` if one is wrong."""
    options = _lower_names(raw)
    _check_not_lost(options)
    _warn_unknown(options)
    _warn_ignored(options, streaming=streaming)
    return _parse(options, streaming=streaming)


def check(raw: Mapping[str, str]) -> None:
    """Raise ConfigError if the options fit neither a batch query nor a streaming query."""
    options = _lower_names(raw)
    _check_not_lost(options)
    try:
        _parse(options, streaming=False)
    except ConfigError as error:
        try:
            _parse(options, streaming=True)
        except ConfigError:
            raise error from None


def _lower_names(raw: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): str(value) for name, value in raw.items()}


def _parse(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    if streaming:
        for name in _BATCH_ONLY:
            if name.lower() in options:
                raise ConfigError(f"`{name}` applies to batch queries only. A stream has no end.")
    starting = limit(options, "starting", LATEST if streaming else EARLIEST)
    ending = limit(options, "ending", LATEST)
    if not streaming:
        _check_batch(starting, ending)
    lowest, highest = (
        _number(options, f"{end}OffsetsPerTrigger", least=1) for end in ("min", "max")
    )
    if lowest is not None and highest is not None and lowest > highest:
        raise ConfigError(
            f"`minOffsetsPerTrigger` ({lowest}) must not be larger than `maxOffsetsPerTrigger` "
            f"({highest})."
        )
    return SourceOptions(
        kafka=kafka_properties(options),
        selection=selection(options),
        starting=starting,
        ending=ending,
        min_partitions=_number(options, "minPartitions", least=1),
        max_records_per_partition=_number(options, "maxRecordsPerPartition", least=1),
        records_per_task=_number(options, "recordsPerTask", least=1),
        max_offsets_per_trigger=highest,
        min_offsets_per_trigger=lowest,
        max_trigger_delay_ms=_milliseconds(
            "maxTriggerDelay", options.get("maxtriggerdelay", "15m")
        ),
        fail_on_data_loss=_bool(options, "failOnDataLoss", default=True),
        include_headers=_bool(options, "includeHeaders", default=False),
        commit_to_group=options.get("committogroup", "").strip() or None,
        push_filters=_bool(options, "pushFilters", default=False),
        value_format=_value_format(options),
        value_schema=options.get("valueschema"),
        protobuf=parse_protobuf(options),
        mode=_choice(options, "mode", MODES) or "PERMISSIVE",
    )


def _check_not_lost(options: Mapping[str, str]) -> None:
    """Raise ConfigError if neither the bootstrap servers nor any topics are given.

    The message says that Spark drops the options of a table created by `CREATE TABLE ... USING`.
    """
    if "kafka.bootstrap.servers" not in options and SELECTIONS.isdisjoint(options):
        raise ConfigError(
            "`kafka.bootstrap.servers` is missing, and so is the selection of topics. A table that "
            "was created by CREATE TABLE ... USING cannot be read, because Spark does not pass its "
            "options to a Python source. Use CREATE TEMPORARY VIEW ... USING asyncconsumer OPTIONS "
            "(...), or spark.read."
        )


def parse_protobuf(raw: Mapping[str, str]) -> protobuf_options.ProtobufOptions | None:
    """Return the Protobuf options, or None if the option `valueFormat` is not protobuf."""
    options = _lower_names(raw)
    if _value_format(options) == "protobuf":
        return protobuf_options.protobuf_options(options)
    return None


def _value_format(options: Mapping[str, str]) -> str | None:
    return _choice(options, "valueFormat", VALUE_FORMATS)


def _check_batch(starting: Limit, ending: Limit) -> None:
    for end, bound, symbolic, word in (
        ("starting", starting, LATEST, "latest"),
        ("ending", ending, EARLIEST, "earliest"),
    ):
        if bound == StartBound(symbolic):
            raise ConfigError(f"`{end}Offsets` can't be {word} for batch queries on Kafka.")
        if isinstance(bound, OffsetBound):
            for tp, offset in bound.offsets.items():
                if offset == symbolic:
                    raise ConfigError(
                        f"`{end}Offsets` for {tp} can't be {word} ({symbolic}) for batch queries "
                        "on Kafka."
                    )


def _warn_unknown(options: Mapping[str, str]) -> None:
    """Log a warning for each unknown option. Spark's own source ignores them, too.

    Pipelines pass the options of several sources and sinks in one mapping.
    """
    known = {"value_format", *(name.lower() for name in _KNOWN)}
    for name in options.keys() - known:
        if not name.startswith(PREFIX):
            nearest = f"{PREFIX}{name}" if is_property(name) else nearest_name(name, _KNOWN)
        elif is_property(plain := name.removeprefix(PREFIX)):
            continue
        else:
            near = nearest_property(plain)
            nearest = near and f"{PREFIX}{near}"
        hint = f". Did you mean {nearest}?" if nearest else ""
        _log.warning("%s is not an option of this source, and is ignored%s", name, hint)


def _warn_ignored(options: Mapping[str, str], *, streaming: bool) -> None:
    """Log a warning for each option that has no effect, as Spark's own source does."""
    for name in () if streaming else _STREAM_ONLY:
        if name.lower() in options:
            _log.warning("%s is ignored, because it applies to streaming queries only", name)
    for name in _GROUP_OPTIONS:
        if name.lower() in options:
            _log.warning(
                "%s is ignored, because the source joins no group; commitToGroup commits the "
                "progress of a stream to a group",
                name,
            )


def _number(options: Mapping[str, str], name: str, *, least: int) -> int | None:
    text = options.get(name.lower(), "").strip()
    return parse_int(name, text, least) if text else None


def _bool(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    return parse_bool(name, options.get(name.lower(), str(default)))


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str | None:
    text = options.get(name.lower(), "").strip()
    if not text and name == "valueFormat":
        text = options.get("value_format", "").strip()
    for choice in choices:
        if text.lower() == choice.lower():
            return choice
    if text:
        raise ConfigError(f"`{name}` must be one of {', '.join(choices)}, got {text!r}.")
    return None


def _milliseconds(name: str, text: str) -> int:
    match = _DELAY.fullmatch(text.strip().lower())
    if match is None:
        raise ConfigError(f"`{name}` must be a time such as 15m, 30s or 500ms, got {text!r}.")
    return int(int(match[1]) * _UNITS[match[2] or "ms"])
