"""Brokers with TLS and logins, with the options of Spark's own source."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import (
    MUTUAL_TLS,
    SASL_OAUTH,
    SASL_SCRAM,
    Kafka,
    Listener,
    UnsecuredToken,
)
from asyncconsumer.testing.servers.listeners import PASSWORDS
from tests.spark.options.test_key_stores import KEY_PASSWORD, PASSWORD, write_stores
from tests.support.spark_queries import OWN, TESTED, fill, rows

JAVA = "org.apache.kafka.common.security"
SECRET = PASSWORDS["alice"]


async def token() -> str:
    return await UnsecuredToken("alice").token()


def expired_token() -> str:
    return asyncio.run(UnsecuredToken("alice", timedelta(minutes=-5)).token())


@pytest.fixture(scope="module")
def secured() -> Iterator[Kafka]:
    kafka = Kafka(listeners=(SASL_SCRAM, SASL_OAUTH, MUTUAL_TLS))
    with asyncio.Runner() as runner:
        runner.run(kafka.start())
    yield kafka
    with asyncio.Runner() as runner:
        runner.run(kafka.stop())


@pytest.fixture(scope="module")
def topic(secured: Kafka) -> str:
    async def make() -> str:
        handle = KafkaHandle(secured, "secured")
        name = await handle.topic(partitions=2)
        await fill(handle, name, 20, 2)
        return name

    return asyncio.run(make())


def tls(kafka: Kafka, listener: Listener) -> dict[str, str]:
    assert kafka.certificates is not None
    return {
        "kafka.bootstrap.servers": kafka.addresses(listener),
        "kafka.security.protocol": listener.security_protocol,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.certificates.authority_file),
    }


def scram(kafka: Kafka, password: str = SECRET) -> dict[str, str]:
    login = f'{JAVA}.scram.ScramLoginModule required username="alice" password="{password}";'
    return {
        **tls(kafka, SASL_SCRAM),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": login,
    }


def oauth(kafka: Kafka, provider: str = "token") -> dict[str, str]:
    module = f"{JAVA}.oauthbearer.OAuthBearerLoginModule"
    return {
        **tls(kafka, SASL_OAUTH),
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": f'{module} required unsecuredLoginStringClaim_sub="alice";',
        "kafka.sasl.oauth.token.provider": f"{__name__}:{provider}",  # only of this source
    }


def mutual(kafka: Kafka) -> dict[str, str]:
    assert kafka.certificates is not None
    return {
        **tls(kafka, MUTUAL_TLS),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": str(kafka.certificates.client_file),
    }


@pytest.fixture(scope="module")
def stores(secured: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    assert secured.certificates is not None
    write_stores(folder, secured.certificates.authority_file, secured.certificates.client_file)
    return folder


@pytest.mark.parametrize("kind", ["jks", "pkcs12"])
def test_java_key_stores_are_read_as_by_sparks_own_source(
    spark: SparkSession, secured: Kafka, topic: str, stores: Path, kind: str
) -> None:
    options = {
        **mutual(secured),
        "kafka.ssl.truststore.type": kind.upper(),
        "kafka.ssl.truststore.location": str(stores / f"trust.{kind}"),
        "kafka.ssl.truststore.password": PASSWORD,
        "kafka.ssl.keystore.type": kind.upper(),
        "kafka.ssl.keystore.location": str(stores / f"keys.{kind}"),
        "kafka.ssl.keystore.password": PASSWORD,
        "kafka.ssl.key.password": KEY_PASSWORD if kind == "jks" else PASSWORD,
    }
    own, tested = (rows(frame(spark, source, topic, options)) for source in (OWN, TESTED))
    assert tested == own
    assert len(tested) == 20


def frame(spark: SparkSession, source: str, topic: str, options: dict[str, str]) -> DataFrame:
    return spark.read.format(source).options(**options).option("subscribe", topic).load()


@pytest.mark.parametrize("way", [scram, oauth, mutual])
def test_rows_over_secure_listeners_equal_those_of_sparks_own_source(
    spark: SparkSession, secured: Kafka, topic: str, way: Any
) -> None:
    own, tested = (rows(frame(spark, source, topic, way(secured))) for source in (OWN, TESTED))
    assert tested == own
    assert len(tested) == 20


def test_a_stream_with_a_login_writes_no_secret(
    spark: SparkSession, secured: Kafka, topic: str, tmp_path: Path
) -> None:
    data = (
        spark.readStream.format(TESTED)
        .options(**scram(secured), subscribe=topic, startingOffsets="earliest")
        .load()
    )
    assert SECRET not in explained(data)
    query = (
        data.writeStream.format("memory")
        .queryName("secured")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert spark.table("secured").count() == 20
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not any(SECRET.encode() in each for each in written)


def explained(data: DataFrame) -> str:
    """Return everything that Spark shows of a query, pages included."""
    execution, jvm = data._jdf.queryExecution(), SparkContext._jvm
    assert jvm is not None
    show = jvm.PythonSQLUtils.explainString
    return "".join(
        [
            execution.analyzed().toJSON(),
            *(show(execution, how) for how in ("extended", "formatted", "cost")),
        ]
    )


REFUSED: dict[str, tuple[Callable[[Kafka], dict[str, str]], str]] = {
    "a wrong password": (lambda kafka: scram(kafka, "guessed"), "WrongCredentials"),
    "an expired token": (lambda kafka: oauth(kafka, "expired_token"), "TokenRefused"),
    "no certificate": (lambda kafka: tls(kafka, MUTUAL_TLS), "ClientCertificateRefused"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_login_is_reported_without_secrets(
    spark: SparkSession,
    secured: Kafka,
    topic: str,
    case: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    of, message = REFUSED[case]
    options = of(secured)
    data = frame(spark, TESTED, topic, options)
    assert "guessed" not in explained(data)
    with pytest.raises(PySparkException, match=message) as caught:
        data.collect()
    output = str(caught.value) + "".join(capfd.readouterr())
    assert "guessed" not in output
    assert "eyJ" not in output  # the start of tokens
