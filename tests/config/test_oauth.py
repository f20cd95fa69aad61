"""Options of OAUTHBEARER from files and environment variables."""

import logging
from pathlib import Path

import pytest

from asyncconsumer import AzureEntra, ConfigError, MskIam, Oidc
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.config.external import ExternalOptions
from asyncconsumer.config.jaas import parse_jaas
from asyncconsumer.config.security import _warn_unencrypted

pytestmark = pytest.mark.fast

PREFIX = "ASYNCCONSUMER_SASL_"
LOGIN = {
    "ASYNCCONSUMER_BOOTSTRAP_SERVERS": "a:1",
    "ASYNCCONSUMER_SECURITY_PROTOCOL": "SASL_SSL",
    f"{PREFIX}MECHANISM": "OAUTHBEARER",
}
CLIENT = {
    f"{PREFIX}OAUTHBEARER_TOKEN_ENDPOINT_URL": "https://a/b",
    f"{PREFIX}OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID": "billing",
    f"{PREFIX}OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET": "hunter2",
    f"{PREFIX}OAUTHBEARER_EXTENSIONS": "logicalCluster=lkc-1, pool=p",
}


def configured(variables: dict[str, str], path: Path | None = None) -> ConnectionConfig:
    return ConnectionConfig(**ExternalOptions.read({}, path, variables).options)


def token() -> str:
    return "a token"


def test_oidc_is_configured_by_variables() -> None:
    config = configured(LOGIN | CLIENT)
    provider = config.sasl_oauth_token_provider
    assert isinstance(provider, Oidc)
    assert provider.extensions() == {"logicalCluster": "lkc-1", "pool": "p"}
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize("name", list(CLIENT)[1:3])
def test_a_missing_oidc_option_is_reported(name: str) -> None:
    variables = {key: value for key, value in (LOGIN | CLIENT).items() if key != name}
    option = name.removeprefix("ASYNCCONSUMER_").lower()
    with pytest.raises(ConfigError, match=f"needs `{option}`"):
        configured(variables)


def test_a_token_provider_and_oidc_together_are_refused() -> None:
    provider = {f"{PREFIX}OAUTH_TOKEN_PROVIDER": f"{__name__}:token"}
    with pytest.raises(ConfigError, match="are both set"):
        configured(LOGIN | CLIENT | provider)


async def test_a_token_function_is_imported_by_name() -> None:
    provider = {f"{PREFIX}OAUTH_TOKEN_PROVIDER": f"{__name__}:token"}
    source = configured(LOGIN | provider).sasl_oauth_token_provider
    assert await source.token() == "a token"  # type: ignore[union-attr] # a provider by now


@pytest.mark.parametrize(
    "lines",
    [
        (
            "sasl.mechanism=AWS_MSK_IAM\n"
            "sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;\n"
            "sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler"
        ),
        (
            "sasl.mechanism=OAUTHBEARER\n"
            "sasl.jaas.config=org.apache.x.OAuthBearerLoginModule required;\n"
            "sasl.login.callback.handler.class="
            "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
        ),
    ],
)
def test_a_properties_file_for_msk_selects_msk_iam(
    tmp_path: Path, lines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("botocore")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    path = tmp_path / "a.properties"
    path.write_text(f"bootstrap.servers=a:1\nsecurity.protocol=SASL_SSL\n{lines}\n")
    provider = configured({}, path).sasl_oauth_token_provider
    assert isinstance(provider, MskIam)
    assert provider.region == "eu-west-1"


def test_entra_gets_the_scope() -> None:
    pytest.importorskip("azure.identity")
    entra = {f"{PREFIX}OAUTH_TOKEN_PROVIDER": "asyncconsumer:AzureEntra"}
    with pytest.raises(ConfigError, match="needs a scope"):
        configured(LOGIN | entra)
    scope = {f"{PREFIX}OAUTHBEARER_SCOPE": "https://n.servicebus.windows.net/.default"}
    provider = configured(LOGIN | entra | scope).sasl_oauth_token_provider
    assert isinstance(provider, AzureEntra)


def test_a_login_without_tls_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    _warn_unencrypted.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            ConnectionConfig(
                bootstrap_servers="a:1",
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="PLAIN",
                sasl_plain_username="a",
                sasl_plain_password="hunter2",
            )
    assert caplog.text.count("without TLS") == 1


def test_a_kerberos_ticket_login_sets_the_service_name() -> None:
    text = 'x.Krb5LoginModule required useTicketCache=true serviceName="brokers";'
    assert parse_jaas(text, "GSSAPI") == {"sasl_kerberos_service_name": "brokers"}
