"""Options and offsets, without a Spark or a broker."""

import json
import ssl
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trustme
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from asyncconsumer import MskIam
from asyncconsumer.errors import ConfigError
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.spark.options.kafka import make_configs
from asyncconsumer.spark.options.selection import (
    Matching,
    OffsetBound,
    StartBound,
    SubscribedTopicNames,
    TimeBound,
    restrict,
)
from asyncconsumer.spark.options.source import SourceOptions, parse
from asyncconsumer.spark.source.offsets import (
    Offsets,
    count_backlog,
    from_json,
    ids_in,
    lag,
    limit_offsets,
    ranges_between,
    recreated,
    start_in,
    to_json,
    with_ids,
    with_start,
)
from asyncconsumer.spark.source.pushdown import PushedFilters
from asyncconsumer.spark.source.resolve import check_complete, resolve
from asyncconsumer.spark.source.task_planning import plan_tasks, ranges_to_sample
from asyncconsumer.types import Address, OffsetRange, TopicPartition

pytestmark = pytest.mark.fast

LEAST = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
A, B, C = (TopicPartition("t", number) for number in range(3))


def parsed(*, streaming: bool = False, **options: str) -> SourceOptions:
    return parse(LEAST | options, streaming=streaming)


def test_defaults_are_those_of_sparks_own_source() -> None:
    options = parsed()
    assert options.selection == SubscribedTopicNames(("t",))
    assert (options.starting, options.ending) == (StartBound(EARLIEST), StartBound(LATEST))
    assert parsed(streaming=True).starting == StartBound(LATEST)
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.max_trigger_delay_ms == 15 * 60_000
    assert make_configs(options.kafka)[1].isolation_level == "read_uncommitted"


def test_option_names_are_case_insensitive() -> None:
    options = parsed(STARTINGOFFSETS="Earliest", maxoffsetspertrigger="7", FailOnDataLoss="FALSE")
    assert options.starting == StartBound(EARLIEST)
    assert options.max_offsets_per_trigger == 7
    assert not options.fail_on_data_loss
    assert parsed(maxOffsetsPerTrigger=str(2**63 - 1)).max_offsets_per_trigger == 2**63 - 1


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("15m", 900_000), ("30s", 30_000), ("20", 20), ("2 h", 7_200_000), ("5us", 0)],
)
def test_max_trigger_delay_has_a_unit(text: str, milliseconds: int) -> None:
    assert parsed(maxTriggerDelay=text).max_trigger_delay_ms == milliseconds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.enable.auto.commit": "true"}, "commitToGroup"),
        ({"kafka.isolation.level": "committed"}, "`isolation_level` must be one of"),
        ({"kafka.fetch.max.bytes": "many"}, "`kafka.fetch.max.bytes` must be a whole number"),
        ({"failOnDataLoss": "no"}, "`failOnDataLoss` must be true or false"),
        ({"minPartitions": "0"}, "`minPartitions` must be a whole number from 1"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "must be error or latest"),
        ({"maxTriggerDelay": "soon"}, "a time such as 15m"),
        ({"startingOffsets": '{"t": 3}'}, "must have the form"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "must have the form"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "must not be larger than"),
        ({"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}, "jaas"),
        (
            {"kafka.ssl.cipher.suites": "TLS_AES", "kafka.security.protocol": "SSL"},
            "cannot be set. Java's cipher names",
        ),
        ({"kafka.ssl.engine.factory.class": "org.Mine"}, "cannot be set. The source runs no Java"),
        ({"kafka.default.api.timeout.ms": "1s"}, "`kafka.default.api.timeout.ms` must be a whole"),
        ({"mode": "maybe"}, "`mode` must be one of PERMISSIVE"),
        ({"valueFormat": "xml"}, "`valueFormat` must be one of json"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(LEAST | options, streaming=False)


@pytest.mark.parametrize(
    ("name", "streaming", "message"),
    [
        ("maxOffsetsPerTrigger", False, "applies to streaming queries only"),
        ("minOffsetsPerTrigger", False, "applies to streaming queries only"),
        ("maxTriggerDelay", False, "applies to streaming queries only"),
        ("commitToGroup", False, "applies to streaming queries only"),
        ("maxOffsetsPerTrigger", True, ""),
        ("commitToGroup", True, ""),
        ("kafka.group.id", True, "joins no group"),
        ("groupIdPrefix", False, "joins no group"),
        ("kafka.ssl.keymanager.algorithm", True, ""),  # options of Java only
        ("kafka.metadata.recovery.strategy", True, ""),
        ("partition.metadata.cache.ttl.ms", True, ""),
        ("startingofsets", False, "is ignored. Did you mean startingOffsets?"),
        ("kafka.isolation.levl", True, "is ignored. Did you mean kafka.isolation.level?"),
        ("bootstrap.servers", False, "is ignored. Did you mean kafka.bootstrap.servers?"),
        ("kafka.acks", True, "kafka.acks is not an option of this source, and is ignored"),
        ("path", False, "is not an option of this source"),
        ("kafka.ssl.cipher.suites", False, ""),  # without TLS it has no effect
    ],
)
def test_ignored_options_are_logged_if_they_have_an_effect_elsewhere(
    name: str, streaming: bool, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    parse(LEAST | {name: "7"}, streaming=streaming)
    assert message in caplog.text
    assert bool(message) == (name in caplog.text)


def test_offsets_with_a_zero_fraction_are_accepted() -> None:
    assert parsed(startingOffsets='{"t": {"0": 1.0}}').starting == OffsetBound(
        {A: 1}, "startingOffsets"
    )
    with pytest.raises(ConfigError, match="must have the form"):
        parsed(startingOffsets='{"t": {"0": 1.5}}')


def test_the_error_for_a_catalog_table_has_advice() -> None:
    with pytest.raises(ConfigError, match="CREATE TEMPORARY VIEW"):
        parse({"path": "/warehouse/t"}, streaming=False)


def test_brokers_and_valid_topics_are_required() -> None:
    with pytest.raises(ConfigError, match=r"`kafka\.bootstrap\.servers` is missing"):
        parse({"subscribe": "t"}, streaming=False)
    for bad in (
        {"subscribe": " , "},
        {"subscribePattern": "("},
        {"subscribePattern": "(?<=a+)b"},
        {"assign": '{"t": 1}'},
    ):
        with pytest.raises(ConfigError):
            parse({"kafka.bootstrap.servers": "a:1"} | bad, streaming=False)
    assert Matching("a.c").filter(["abc", "xabcx", "b"]) == ("abc", "xabcx")
    internal = ["__consumer_offsets", "__transaction_state", "__share_group_state"]
    assert Matching(".*").filter([*internal, "__mine", "t"]) == ("__mine", "t")


def test_allowed_hosts_limit_connections() -> None:
    hosts = LEAST | {"kafka.allowed.hosts": "*.example.com, 10.0.0.0/8"}
    connection, _ = make_configs(parse(hosts, streaming=False).kafka)
    assert connection.allows(Address("k1.example.com", 1))
    assert connection.allows(Address("10.1.2.3", 1))
    assert not connection.allows(Address("elsewhere", 1))
    with pytest.raises(ConfigError, match="allowed_hosts"):
        parse(LEAST | {"kafka.allowed.hosts": "10.0.0.0/99"}, streaming=False)


def test_a_jaas_config_sets_username_and_password() -> None:
    line = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required\n"
        '  username="alice" password="it\'s \\"so\\"";'
    )
    kafka = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": line,
    }
    options = {f"kafka.{name}": value for name, value in kafka.items()} | {"subscribe": "t"}
    assert "alice" not in repr(parse(options, streaming=False))
    connection, _ = make_configs(kafka)
    assert connection.sasl_plain_username == "alice"
    assert connection.sasl_plain_password == 'it\'s "so"'
    for space in ("\n", "\t", "\r\n  "):
        broken = {**kafka, "sasl.jaas.config": line.replace(" ", space, 1)}
        assert make_configs(broken)[0].sasl_plain_username == "alice"
    with pytest.raises(ConfigError, match="must have a username and a password") as caught:
        make_configs({**kafka, "sasl.jaas.config": 'ScramLoginModule required username="alice";'})
    assert "alice" not in str(caught.value)


def test_a_jaas_config_of_aws_needs_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    java = "software.amazon.msk.auth.iam"
    kafka = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f"{java}.IAMLoginModule required;",
        "sasl.client.callback.handler.class": f"{java}.IAMClientCallbackHandler",
    }
    assert type(make_configs(kafka)[0].sasl_oauth_token_provider) is MskIam


def test_certificates_are_read_from_pem_files_and_options(tmp_path: Path) -> None:
    authority = trustme.CA()
    trust, own, other = (tmp_path / name for name in ("ca.pem", "own.pem", "trust.jks"))
    authority.cert_pem.write_to_path(trust)
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(own)
    other.write_bytes(b"\xfe\xed")
    kafka = {"bootstrap.servers": "a:1", "security.protocol": "SSL"}
    stores = {"ssl.truststore.location": str(trust), "ssl.keystore.location": str(own)}
    context = make_configs(kafka | stores)[0].ssl_context
    assert context is not None
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1
    inline = {
        "ssl.truststore.certificates": trust.read_text(),
        "ssl.keystore.certificate.chain": own.read_text(),
        "ssl.endpoint.identification.algorithm": "",
    }
    context = make_configs(kafka | inline)[0].ssl_context
    assert context is not None
    assert not context.check_hostname
    for bad, message in (
        ({"ssl.truststore.location": str(other)}, "is no PEM, PKCS12 or JKS file"),
        (
            {"ssl.truststore.location": str(trust), "ssl.truststore.type": "JKS"},
            "type` is JKS, and .* is a PEM file",
        ),
        ({"ssl.truststore.location": str(tmp_path / "none.pem")}, "No such file"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_configs(kafka | bad)


@pytest.mark.parametrize(
    "algorithm", ["htps", "true", "false", "none", "ldaps", "http", "https,", "null", "-"]
)
def test_an_unknown_endpoint_identification_algorithm_is_refused(algorithm: str) -> None:
    """Check unknown algorithms, which would disable the check."""
    named = {"ssl.endpoint.identification.algorithm": algorithm}
    for protocol in ("SSL", "PLAINTEXT"):
        kafka = {"bootstrap.servers": "a:1", "security.protocol": protocol}
        with pytest.raises(
            ConfigError, match=r"identification\.algorithm` must be https, or empty"
        ):
            make_configs(kafka | named)
        options = {f"kafka.{name}": value for name, value in (kafka | named).items()}
        with pytest.raises(ConfigError, match="must be https, or empty"):
            parse(options | {"subscribe": "t"}, streaming=False)


@pytest.mark.parametrize(
    ("algorithm", "checked"), [("https", True), ("HTTPS", True), ("", False), (" ", False)]
)
def test_host_names_are_checked_unless_the_algorithm_is_empty(
    algorithm: str, checked: bool
) -> None:
    kafka = {"bootstrap.servers": "a:1", "security.protocol": "SSL"}
    named = {"ssl.endpoint.identification.algorithm": algorithm}
    context = make_configs(kafka | named)[0].ssl_context
    assert context is not None
    assert context.check_hostname == checked
    assert context.verify_mode == ssl.CERT_REQUIRED


def test_invalid_truststore_options_are_refused(tmp_path: Path) -> None:
    """Check that no wrong truststore option falls back to the authorities of the system."""
    trust = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(trust)
    kafka = {"bootstrap.servers": "a:1", "security.protocol": "SSL"}
    for bad, message in (
        ({"ssl.truststore.certificates": ""}, "certificates` is empty"),
        ({"ssl.truststore.certificates": " \n"}, "certificates` is empty"),
        ({"ssl.truststore.location": ""}, "options are invalid"),
        ({"ssl.truststore.password": "secret"}, "without `kafka.ssl.truststore.location`"),
        (
            {
                "ssl.truststore.location": str(trust),
                "ssl.truststore.certificates": trust.read_text(),
            },
            "not both",
        ),
        ({"ssl.trustmanager.algorithm": "Pinned"}, "'Pinned'"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            make_configs(kafka | bad)
        assert "secret" not in str(caught.value)
    assert make_configs(kafka | {"ssl.trustmanager.algorithm": "PKIX"})[0].encrypted


def test_enabled_protocols_limit_tls_versions() -> None:
    kafka = {"bootstrap.servers": "a:1", "security.protocol": "SSL"}
    old, new = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    for value, limits in (("TLSv1.2", (old, old)), ("TLSv1.3, TLSv1.2", (old, new))):
        context = make_configs(kafka | {"ssl.enabled.protocols": value})[0].ssl_context
        assert context is not None
        assert (context.minimum_version, context.maximum_version) == limits
    with pytest.raises(ConfigError, match=r"must be of TLSv1.2, TLSv1.3, got 'TLSv1'"):
        make_configs(kafka | {"ssl.enabled.protocols": "TLSv1,TLSv1.2"})


class _Log:
    """A log of offsets 0 to 100 with a record every ten milliseconds."""

    async def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return dict.fromkeys(partitions, 100)

    async def list_offsets(self, times: Mapping[TopicPartition, int]) -> Offsets:
        places = {EARLIEST: 0, LATEST: 100}
        return {
            tp: places.get(time, -1 if time > 990 else time // 10) for tp, time in times.items()
        }


async def test_bounds_are_resolved_to_offsets() -> None:
    log, both = _Log(), {A, B}
    assert await resolve(log, StartBound(LATEST), both) == {A: 100, B: 100}
    assert await resolve(log, OffsetBound({A: -2, B: 7}, "o"), both) == {A: 0, B: 7}
    assert await resolve(log, TimeBound(500, "o"), both) == {A: 50, B: 50}
    assert await resolve(log, TimeBound({A: 10, B: 9999}, "o"), both) == {A: 1, B: 100}
    with pytest.raises(ConfigError, match=r"t\[1\] has no record at or after 9999"):
        await resolve(log, TimeBound({A: 10, B: 9999}, "o", or_latest=False), both)
    with pytest.raises(ConfigError, match=r"Expected t\[0\], t\[1\], got t\[0\]"):
        check_complete(OffsetBound({A: 1}, "o"), both)
    check_complete(restrict(OffsetBound({A: 1, B: 2}, "o"), {A}), {A})
    check_complete(restrict(TimeBound({A: 1, B: 2}, "o"), {B}), {B})


def test_offsets_are_written_in_sparks_json_format() -> None:
    offsets = {B: 2, A: 1, TopicPartition("s", 10): 3}
    assert to_json(offsets) == {"s": {"10": 3}, "t": {"0": 1, "1": 2}}
    assert from_json(to_json(offsets)) == offsets


def test_the_end_of_a_first_batch_has_its_start() -> None:
    start, end = to_json({A: 1}), to_json({A: 4, B: 2})
    extended = with_start(end, start)
    assert from_json(extended) == {A: 4, B: 2}
    assert start_in(extended) == {A: 1}
    assert start_in(end) is None


def test_offsets_have_topic_ids() -> None:
    ids = {"t": UUID(int=1 << 100), "s": UUID(int=2**128 - 1), "x.y-z_": UUID(int=3)}
    for end in (to_json({A: 4, B: 2}), with_start(to_json({A: 4, B: 2}), to_json({A: 1}))):
        extended = with_ids(end, ids)
        assert from_json(json.loads(json.dumps(extended))) == {A: 4, B: 2}
        assert ids_in(extended) == ids
        assert start_in(extended) == start_in(end)
        assert len(extended) == len(end) + 1  # one entry for all topics
        assert ids_in(end) == {}
        assert with_ids(end, {}) == end


def test_a_topic_is_re_created_only_if_both_ids_are_known() -> None:
    topic_id, other = UUID(int=1), UUID(int=2)
    assert recreated({"t": topic_id, "u": topic_id}, {"t": topic_id, "v": other}) == []
    (loss,) = recreated({"t": topic_id, "u": topic_id}, {"t": other, "u": topic_id})
    assert "topic t was deleted and re-created" in str(loss)


def test_a_limit_is_divided_in_proportion_to_the_backlog() -> None:
    start, latest = {A: 0, B: 100}, {A: 900, B: 190, C: 10}
    assert limit_offsets(start, latest, {C: 0}, 100) == {A: 90, B: 109, C: 1}
    assert limit_offsets(start, latest, {C: 0}, 50) == {A: 45, B: 104, C: 1}  # none is left out
    assert limit_offsets(start, latest, {C: 0}, 10_000) == latest
    assert limit_offsets(start, start, {}, 5) == start
    assert limit_offsets({A: 10}, {A: 4}, {}, 5) == {A: 4}  # the loss is reported elsewhere
    assert count_backlog(start, latest, {C: 0}) == 900 + 90 + 10
    assert count_backlog(start, latest, {C: 4}) == 900 + 90 + 6  # retention deleted 4
    assert count_backlog(start, latest, {}) == 900 + 90  # the partition was deleted again


def test_ranges_between_offsets_and_losses() -> None:
    ranges, losses = ranges_between({A: 1, B: 5}, {A: 4, B: 5}, {})
    assert (ranges, losses) == ([OffsetRange("t", 0, 1, 4)], [])
    ranges, losses = ranges_between({A: 9, B: 5}, {A: 4, C: 3}, {C: 2})
    assert ranges == [OffsetRange("t", 2, 2, 3)]
    assert [loss.reason.partition(".")[2] for loss in losses] == [
        "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
        "PARTITIONS_DELETED",
        "PARTITION_OFFSET_CHANGED",
    ]
    assert "changed from 9 to 4: the query starts after the end" in str(losses[2])
    ranges, losses = ranges_between({}, {A: 4}, {})
    assert (ranges, len(losses)) == ([], 1)


def _tasks(sizes: list[int], **options: Any) -> list[list[int]]:
    ranges = [OffsetRange("t", number, 5, 5 + size) for number, size in enumerate(sizes)]
    results = plan_tasks(ranges, parsed(**options))
    for number, size in enumerate(sizes):  # each offset is read once
        parts = sorted(
            offset_range
            for task in results
            for offset_range in task
            if offset_range.partition == number
        )
        assert [
            offset
            for offset_range in parts
            for offset in range(offset_range.start, offset_range.end)
        ] == list(range(5, 5 + size))
    return [[offset_range.end - offset_range.start for offset_range in task] for task in results]


def test_small_ranges_share_a_task_and_large_ones_do_not() -> None:
    sizes = [30_000, 100, 0, 19_000, 900]
    assert _tasks(sizes, recordsPerTask="20000") == [[30_000], [19_000, 900, 100]]
    assert _tasks([10, 20], recordsPerTask="1") == [[20], [10]]
    assert _tasks(sizes) == [[30_000], [100], [19_000], [900]]
    assert _tasks([]) == []


def test_large_records_limit_the_ranges_of_a_task() -> None:
    ranges = [OffsetRange("t", number, 0, 1000) for number in range(16)]
    ranges += [OffsetRange("u", number, 0, 1000) for number in range(16)]
    options = parsed(recordsPerTask="20000")

    def sizes(**record_bytes: int) -> list[int]:
        return sorted(len(task) for task in plan_tasks(ranges, options, record_bytes))

    assert sizes() == sizes(t=100, u=100) == [12, 20]
    assert sizes(t=2**20, u=2**20) == [1] * 32
    assert sizes(t=2**20) == [1] * 16 + [16]
    assert sizes(t=2**11, u=2**11) == [4] * 8
    assert ranges_to_sample(ranges, options) == [ranges[15], ranges[31]]
    assert ranges_to_sample(ranges, parsed()) == []
    assert ranges_to_sample(ranges, parsed(minPartitions="1")) == []
    assert ranges_to_sample(ranges[:1], options) == []


def test_ranges_are_divided_on_request() -> None:
    assert _tasks([10, 20], minPartitions="2") == [[10], [20]]
    assert _tasks([10, 90], minPartitions="4") == [[10], [30], [30], [30]]
    assert _tasks([7, 3], maxRecordsPerPartition="3") == [[2], [2], [3], [3]]
    assert _tasks([1], minPartitions="4") == [[1]]


def test_lag_is_computed_from_a_querys_progress() -> None:
    source = {"endOffset": {"t": {"0": 3, "1": 5}}, "latestOffset": '{"t": {"0": 13, "1": 5}}'}
    assert lag({"sources": [source]}) == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 10,
        "avgOffsetsBehindLatest": 5.0,
    }
    assert lag({"sources": [{"endOffset": None, "latestOffset": None}]}) == {}


@pytest.mark.parametrize("offset", [7, {"logOffset": 7}, {"shard-1": {"seen": 7}}, "tomorrow", []])
def test_lag_ignores_other_sources_of_a_query(offset: Any) -> None:
    kafka = {"endOffset": {"t": {"0": 3}}, "latestOffset": {"t": {"0": 13}}}
    other = {"endOffset": offset, "latestOffset": offset}
    assert lag({"sources": [other, kafka]})["maxOffsetsBehindLatest"] == 10


def test_pushed_filters_limit_partitions_and_offsets() -> None:
    filters = PushedFilters()
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    retained = [
        EqualTo(("partition",), 1),
        In(("topic",), ("t", "u")),
        GreaterThan(("offset",), 4),
        LessThanOrEqual(("offset",), 7),
        IsNotNull(("offset",)),
    ]
    remaining = [
        GreaterThanOrEqual(("timestamp",), moment),
        LessThan(("timestamp",), moment),
        Not(EqualTo(("partition",), 1)),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        IsNotNull(("key",)),
    ]
    assert list(filters.push([*retained, *remaining])) == remaining
    tps = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("v", 1)]
    assert filters.windows(tps) == [OffsetRange("t", 1, 5, 8)]
    assert filters.since_ms == 1_704_067_200_000
    assert PushedFilters().windows(tps) == [OffsetRange(*tp, 0, 2**63) for tp in tps]


@pytest.mark.parametrize("year", [1, 1969, 1970])
def test_filters_by_timestamps_before_1970_are_not_pushed(year: int) -> None:
    filters = PushedFilters()
    moment = GreaterThanOrEqual(("timestamp",), datetime(year, 1, 1, tzinfo=UTC))
    assert list(filters.push([moment])) == [moment]
    assert filters.since_ms is None  # Kafka would start at the first record with a timestamp
