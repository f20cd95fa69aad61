"""`asyncconsumer doctor` on real brokers: each cause of a failure is named."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import trustme

from asyncconsumer import Consumer, Finding, diagnose
from asyncconsumer.admin.client import AdminClient
from asyncconsumer.admin.diagnosis.addresses import check_address
from asyncconsumer.admin.diagnosis.cluster import check_clock
from asyncconsumer.admin.diagnosis.cluster_view import ClusterView
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.testing.handles import KafkaCluster, KafkaHandle, KafkaWithZooKeeper
from asyncconsumer.testing.servers import (
    INTERNAL,
    PROXIED,
    SASL_OAUTH,
    SASL_PLAIN,
    SECURE,
    TLS,
    TLS_WRONG_HOST,
    Kafka,
    Listener,
)
from asyncconsumer.types import Address
from tests.integration.admin.test_admin import commit, send
from tests.integration.auth.conftest import PREFIX, VALIDATOR
from tests.integration.cli.test_kafka_groups import run
from tests.support.token_server import CLIENT, SECRET, TokenServer, open_token_server


@pytest.fixture(scope="module")
def tokens() -> Iterator[TokenServer]:
    with open_token_server() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tokens: TokenServer) -> AsyncIterator[Kafka]:
    """Yield a broker with all listeners and ACLs, which verifies tokens."""
    config = {
        f"{PREFIX}.server.callback.handler.class": VALIDATOR,
        "sasl.oauthbearer.jwks.endpoint.url": tokens.keys_url,
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": tokens.url,
    }
    with pytest.MonkeyPatch.context() as patch:
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.keys_url}"
        patch.setenv("JAVA_TOOL_OPTIONS", allowed)
        async with Kafka(listeners=SECURE, acls=True, proxied=True, config=config) as kafka:
            yield kafka


class Doctor:
    """The command with a properties file, and its JSON output."""

    def __init__(self, broker: Kafka, folder: Path) -> None:
        self._broker = broker
        self._folder = folder

    async def __call__(
        self, listener: Listener, *arguments: str, code: int, **changes: str | None
    ) -> list[dict[str, Any]]:
        """Run the command with the right options for a listener, except for the changes."""
        assert self._broker.certificates is not None
        options: dict[str, str | None] = {"security.protocol": listener.security_protocol}
        if listener.encrypted:
            options["ssl.cafile"] = str(self._broker.certificates.authority_file)
        if listener.sasl_mechanism == "PLAIN":
            options |= {
                "sasl.mechanism": "PLAIN",
                "sasl.plain.username": "alice",
                "sasl.plain.password": "alice-secret",
            }
        options |= {name.replace("_", "."): value for name, value in changes.items()}
        file = self._folder / "client.properties"
        lines = [f"{name}={value}\n" for name, value in options.items() if value is not None]
        file.write_text("".join(lines))
        servers = ("-b", self._broker.addresses(listener), "--properties", str(file))
        output = await run("doctor", *servers, *arguments, "--json", code=code)
        assert "secret" not in output
        findings: list[dict[str, Any]] = json.loads(output)
        return findings


@pytest.fixture
def doctor(broker: Kafka, tmp_path: Path) -> Doctor:
    return Doctor(broker, tmp_path)


def only_error(findings: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the only error, which must have advice."""
    (error,) = [finding for finding in findings if finding["level"] == "error"]
    assert error["advice"]
    return error


def passed(findings: list[dict[str, Any]]) -> set[str]:
    return {finding["check"] for finding in findings if finding["level"] == "ok"}


async def test_right_options_have_no_errors(doctor: Doctor) -> None:
    findings = await doctor(SASL_PLAIN, code=0)
    assert {"tcp", "tls", "sasl", "listener", "version"} <= passed(findings)
    (feature,) = [finding for finding in findings if finding["check"] == "feature"]
    assert "KIP-848 groups are enabled" in feature["message"]


async def test_a_wrong_password_is_reported(doctor: Doctor) -> None:
    findings = await doctor(SASL_PLAIN, code=1, sasl_plain_password="a-mistake")
    error = only_error(findings)
    assert error["check"] == "sasl"
    assert "Invalid username or password" in error["message"]
    assert "sasl_plain_password" in error["advice"]
    assert passed(findings) == {"tcp", "tls"}


async def test_a_wrong_sasl_mechanism_is_reported(doctor: Doctor) -> None:
    error = only_error(await doctor(SASL_PLAIN, code=1, sasl_mechanism="SCRAM-SHA-512"))
    assert error["check"] == "sasl"
    assert "the broker offers PLAIN" in error["message"]


async def test_a_certificate_of_an_unknown_authority_is_reported(doctor: Doctor) -> None:
    error = only_error(await doctor(TLS, code=1, ssl_cafile=None))
    assert error["check"] == "tls"
    assert "unable to get local issuer certificate" in error["message"]
    assert "ssl_cafile" in error["advice"]


async def test_a_certificate_for_another_host_is_reported(doctor: Doctor) -> None:
    error = only_error(await doctor(TLS_WRONG_HOST, code=1))
    assert error["check"] == "tls"
    assert "not valid for '127.0.0.1'" in error["message"]
    assert "it is valid for elsewhere.example" in error["message"]


async def test_an_expired_token_is_reported(doctor: Doctor, tokens: TokenServer) -> None:
    endpoint = {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": tokens.token_url,
        "sasl_oauthbearer_client_credentials_client_id": CLIENT,
        "sasl_oauthbearer_client_credentials_client_secret": SECRET,
        "sasl_oauthbearer_scope": "read",
    }
    assert "sasl" in passed(await doctor(SASL_OAUTH, code=0, **endpoint))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "lifetime", -600)
        error = only_error(await doctor(SASL_OAUTH, code=1, **endpoint))
    assert error["check"] == "sasl"
    assert "the token expired at" in error["message"]


async def test_tls_or_a_login_on_one_side_only_is_reported(broker: Kafka, doctor: Doctor) -> None:
    servers = {"bootstrap_servers": broker.addresses(INTERNAL)}
    error = only_error(await doctor(TLS, "-b", servers["bootstrap_servers"], code=1))
    assert (error["check"], "PLAINTEXT" in error["message"]) == ("tls", True)
    plain = {"security_protocol": "PLAINTEXT", "ssl_cafile": None}
    error = only_error(await doctor(TLS, code=1, **plain))
    assert "responds with TLS" in error["message"]
    (finding,) = errors(await diagnose(broker.addresses(SASL_PLAIN), **tls_only(broker)))
    assert "it may require a login" in finding.message


def tls_only(broker: Kafka) -> dict[str, Any]:
    assert broker.certificates is not None
    return {"security_protocol": "SSL", "ssl_cafile": str(broker.certificates.authority_file)}


def errors(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level == "error"]


async def test_an_unreachable_advertised_listener_is_reported(
    broker: Kafka, doctor: Doctor
) -> None:
    advertised = broker.proxy_listeners[1]
    port = advertised.getsockname()[1]
    advertised.close()  # the port is not listened on from now on
    findings = await doctor(PROXIED, code=1)
    error = only_error(findings)
    assert (error["check"], error["subject"]) == ("listener", "broker 1")
    assert f"advertises 127.0.0.1:{port}, which this machine cannot use" in error["message"]
    assert "advertised.listeners" in error["advice"]
    assert "tcp" in passed(findings)


async def test_missing_and_revoked_permissions_are_reported(broker: Kafka, doctor: Doctor) -> None:
    await broker.admin.create_topic("orders", partitions=2)
    names = ("--group", "billing", "--topic", "orders")

    async def refused() -> set[tuple[str, str]]:
        findings = [
            finding
            for finding in await doctor(SASL_PLAIN, *names, code=1)
            if finding["level"] == "error"
        ]
        assert {finding["check"] for finding in findings} == {"acl"}
        assert all("--operation Read" in finding["advice"] for finding in findings)
        return {(finding["subject"], finding["message"]) for finding in findings}

    hidden = "user alice may not describe the topic, or it does not exist"
    unknown = "user alice may not describe the group"
    assert await refused() == {("topic orders", hidden), ("group billing", unknown)}
    await broker.admin.allow("alice", "topic", "orders", "describe")
    await broker.admin.allow("alice", "group", "billing", "describe")
    assert await refused() == {
        ("topic orders", "user alice may not read the topic"),
        ("group billing", "user alice may not read the group, so it cannot join or commit"),
    }
    await broker.admin.allow("alice", "topic", "orders", "read")
    await broker.admin.allow("alice", "group", "billing", "read")
    findings = await doctor(SASL_PLAIN, *names, code=0)
    assert {"acl", "replication"} <= passed(findings)
    await broker.admin.revoke("alice", "topic", "orders")
    assert await refused() == {("topic orders", hidden)}


async def test_missing_topics_and_groups_are_reported(broker: Kafka) -> None:
    names = ("--group", "no-such-group", "--topic", "no-such-topic")
    output = await run("doctor", "-b", broker.addresses(INTERNAL), *names, "--json", code=1)
    findings = json.loads(output)
    error = only_error(findings)
    assert (error["check"], error["subject"]) == ("topic", "topic no-such-topic")
    (warning,) = [finding for finding in findings if finding["level"] == "warning"]
    assert (warning["check"], warning["subject"]) == ("group", "group no-such-group")


async def test_a_wrong_clock_is_reported(broker: Kafka) -> None:
    config = ConnectionConfig(bootstrap_servers=broker.addresses(INTERNAL))
    client = AdminClient(config, None, brokers_from_zookeeper=False, patience_ms=1000)

    def fast() -> float:
        return datetime.now(UTC).timestamp() + 60

    async with client:
        right = await check_clock(ClusterView(client))
        wrong = await check_clock(ClusterView(client), now=fast)
    assert (right.level, "at most" in right.message) == ("ok", True)
    assert wrong.level == "warning"
    assert "s ahead of the controller's" in wrong.message


async def test_checks_that_zookeeper_mode_does_not_allow_are_reported(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    topic = await kafka_zk.topic()
    findings = json.loads(
        await run("doctor", "-b", kafka_zk.bootstrap_servers, "-t", topic, "--json")
    )
    (clock,) = [finding for finding in findings if finding["check"] == "clock"]
    assert clock["message"].startswith("not checked")
    (feature,) = [finding for finding in findings if finding["check"] == "feature"]
    assert feature["message"].startswith("only classic groups are enabled")


async def test_stuck_groups_and_offsets_outside_of_the_log_are_reported(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, 9)
    await commit(kafka, group, topic, 4)
    check = ("doctor", "-b", kafka.bootstrap_servers, "-g", group, "-t", topic, "--observe", "1")
    findings = json.loads(await run(*check, "--json"))
    assert "empty: no live member" in [finding["message"] for finding in findings]
    async with Consumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=group,
        commit_policy="manual",
    ) as consumer:
        await consumer.wait_assigned()
        findings = json.loads(await run(*check, "--json"))
        (stuck,) = [finding for finding in findings if finding["check"] == "progress"]
        assert (stuck["level"], stuck["subject"]) == ("warning", f"{topic}[0]")
        assert "stuck: lag 5, no commit within 1 s; the owner is" in stuck["message"]
        assert "group" in passed(findings)
    await commit(kafka, group, topic, 12)
    error = only_error(json.loads(await run(*check, "--json", code=1)))
    assert (error["check"], error["subject"]) == ("offset", f"{topic}[0]")
    assert "12 is after the end of the log 9" in error["message"]


async def test_a_stopped_broker_is_reported(kafka_cluster: KafkaCluster) -> None:
    topic = await kafka_cluster.topic(partitions=3, replication_factor=3)
    check = ("doctor", "-b", kafka_cluster.bootstrap_servers, "-t", topic, "--json")
    assert "replication" in passed(json.loads(await run(*check)))
    await kafka_cluster.brokers[3].stop()
    warnings = [
        finding for finding in json.loads(await run(*check)) if finding["level"] == "warning"
    ]
    (replication,) = [finding for finding in warnings if finding["check"] == "replication"]
    assert "3 partitions are under-replicated" in replication["message"]
    assert "missing on the brokers 3" in replication["message"]
    (tcp,) = [finding for finding in warnings if finding["check"] == "tcp"]
    assert tcp["subject"] == kafka_cluster.brokers[3].address()


async def test_each_finding_is_one_line_of_text(broker: Kafka) -> None:
    dead = "localhost:1"
    output = await run("doctor", "-b", f"{dead},{broker.addresses(INTERNAL)}")
    lines = output.splitlines()
    assert all(line.split()[0] in ("ok", "warning", "error") for line in lines)
    assert any(
        line.startswith("warning  tcp          localhost:1: no connection") for line in lines
    )
    output = await run("doctor", "-b", "no-such-host.invalid:9092", code=1)
    assert output.startswith("error    dns ")


@pytest.mark.parametrize(("days", "level"), [(5, "warning"), (-5, "error"), (90, "ok")])
async def test_the_expiry_of_a_certificate_is_reported(
    tmp_path: Path, days: int, level: str
) -> None:
    authority = trustme.CA()
    end = datetime.now(UTC) + timedelta(days=days, hours=1)
    issued = authority.issue_cert("127.0.0.1", not_after=end.replace(tzinfo=None))
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    issued.configure_cert(server_side)
    cafile = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(cafile)

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_side)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    config = ConnectionConfig(
        bootstrap_servers=str(address), security_protocol="SSL", ssl_cafile=str(cafile)
    )
    async with server:
        report = await check_address(address, config)
    (finding,) = [finding for finding in report.findings if finding.check == "tls"]
    assert finding.level == level
    assert {5: "expires in 5 days", -5: "has expired", 90: "until"}[days] in finding.message
    assert {5: "Renew", -5: "Renew", 90: ""}[days] in finding.advice
