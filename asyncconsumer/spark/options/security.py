"""The TLS and SASL properties of Java clients, translated to `ConnectionConfig`."""

import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from asyncconsumer.aiokafka_parts import AbstractTokenProvider
from asyncconsumer.auth.azure import AzureEntra
from asyncconsumer.config.jaas import parse_jaas
from asyncconsumer.config.java_keys import token_provider
from asyncconsumer.config.tokens import import_token_source, provider_of
from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options.key_stores import read_key_store

TOKEN_PROVIDER: Final = "sasl.oauth.token.provider"  # noqa: S105 - the name of a property
_HANDLER: Final = "sasl.login.callback.handler.class"
_OAUTH: Final = "sasl.oauthbearer"
_OAUTH_SUFFIXES: Final = (
    "token.endpoint.url",
    "client.credentials.client.id",
    "client.credentials.client.secret",
    "scope",
    "extensions",
)
_TOKEN_PROVIDER_RULE: Final = (
    f"`kafka.{TOKEN_PROVIDER}` must be 'module:name' of a function without arguments that returns "
    "a token, or of an aiokafka.abc.AbstractTokenProvider. The driver and executors import it"
)

_MSK: Final = "AWS_MSK_IAM"

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_IDENTIFICATION: Final = "ssl.endpoint.identification.algorithm"
_TRUST_MANAGER: Final = "ssl.trustmanager.algorithm"
_TRUST_MANAGERS: Final = ("PKIX", "SUNX509", "X509")

SUPPORTED: Final = {
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    TOKEN_PROVIDER,
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
    "ssl.keystore.password",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
    _IDENTIFICATION,
    _TRUST_MANAGER,
    "ssl.enabled.protocols",
}
"""The supported security properties of a Java client, without the prefix `kafka.`."""


def security_options(kafka: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of `ConnectionConfig` for these properties of a Java client."""
    protocol = kafka.get("security.protocol", "PLAINTEXT").strip().upper()
    options: dict[str, Any] = {"security_protocol": protocol}
    checks_host_names = _checks_host_names(kafka)
    if protocol.startswith("SASL"):
        mechanism = kafka.get("sasl.mechanism", "GSSAPI").strip().upper()
        options["sasl_mechanism"] = mechanism
        if mechanism == _MSK:  # its login module gets a token from the credentials of AWS
            options["sasl_mechanism"] = "OAUTHBEARER"
            options["sasl_oauth_token_provider"] = load_token_provider("asyncconsumer:MskIam")
        elif mechanism == "OAUTHBEARER":
            options |= _token_options(kafka)
        elif mechanism in ("PLAIN", "GSSAPI") or mechanism.startswith("SCRAM"):
            options |= _login(kafka, mechanism)
    if protocol.endswith("SSL"):
        options["ssl_context"] = context = _ssl_context(kafka)
        context.check_hostname = checks_host_names
    return options


def _token_options(kafka: Mapping[str, str]) -> dict[str, Any]:
    """Return the connection options for SASL OAUTHBEARER, with a token provider or with OIDC."""
    name, handler = kafka.get(TOKEN_PROVIDER, "").strip(), kafka.get(_HANDLER, "").strip()
    scope = kafka.get(f"{_OAUTH}.scope", "")
    if not name and handler:
        name = token_provider(handler) or ""
    if not name and kafka.get(f"{_OAUTH}.token.endpoint.url"):
        jaas = kafka.get("sasl.jaas.config")
        options = {} if jaas is None else parse_jaas(jaas, "OAUTHBEARER")
        names = (f"{_OAUTH}.{suffix}" for suffix in _OAUTH_SUFFIXES)
        return options | {name.replace(".", "_"): kafka[name] for name in names if name in kafka}
    return {"sasl_oauth_token_provider": load_token_provider(name, scope)}


def load_token_provider(name: str, scope: str = "") -> AbstractTokenProvider:
    """Import and return the token provider called `name`, in the form 'module:name'.

    The provider is given by name, because Spark options are strings. `scope` is used only for
    Microsoft Entra.
    """
    if not name:
        raise ConfigError(
            f"`kafka.sasl.mechanism` OAUTHBEARER needs a token provider, because Java's login "
            f"modules and callback handlers cannot run here. Set "
            f"`kafka.{_OAUTH}.token.endpoint.url` for OIDC. {_TOKEN_PROVIDER_RULE}."
        )
    value = import_token_source(_TOKEN_PROVIDER_RULE, name)
    if value is AzureEntra:
        return AzureEntra(scope)
    if (provider := provider_of(value)) is None:
        raise ConfigError(
            f"{_TOKEN_PROVIDER_RULE}. The type of {name!r} is {type(value).__name__}."
        )
    return provider


def _checks_host_names(kafka: Mapping[str, str]) -> bool:
    """Return whether a broker's certificate must contain the broker's host name.

    Return False if `ssl.endpoint.identification.algorithm` is empty. Raise ConfigError for another
    algorithm than https, and for an unknown trust manager.
    """
    value = kafka.get(_IDENTIFICATION, "https")
    if (algorithm := value.strip().lower()) not in ("https", ""):
        raise ConfigError(
            f"`kafka.{_IDENTIFICATION}` must be https, or empty to accept certificates of any "
            f"host, got {value!r}."
        )
    if (manager := kafka.get(_TRUST_MANAGER, "PKIX").strip()).upper() not in _TRUST_MANAGERS:
        raise ConfigError(
            f"`kafka.{_TRUST_MANAGER}` must be {' or '.join(_TRUST_MANAGERS)}, got {manager!r}. "
            "Other trust managers of Java cannot run here, because OpenSSL checks certificates."
        )
    return bool(algorithm)


def _login(kafka: Mapping[str, str], mechanism: str) -> dict[str, str]:
    """Return the login options in the property `sasl.jaas.config`.

    If it is not set, return an empty dict for GSSAPI, and raise ConfigError for other mechanisms.
    """
    jaas = kafka.get("sasl.jaas.config", "").strip()
    if jaas:
        return parse_jaas(jaas, mechanism)
    if mechanism == "GSSAPI":
        return {}
    raise ConfigError(
        f"`kafka.sasl.mechanism` {mechanism} needs `kafka.sasl.jaas.config`, such as "
        "'org.apache.kafka.common.security.plain.PlainLoginModule "
        'required username="..." password="...";\'.'
    )


def _ssl_context(kafka: Mapping[str, str]) -> ssl.SSLContext:
    _check_truststore(kafka)
    try:
        trusted = _trusted(kafka)
        context = ssl.create_default_context(
            cafile=trusted.get("cafile"), cadata=trusted.get("cadata")
        )
        _load_client_certificate(context, kafka)
        if (names := kafka.get("ssl.enabled.protocols")) is not None:
            _limit_versions(context, names)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(f"The `kafka.ssl.*` options are invalid: {error}") from None
    return context


def _check_truststore(kafka: Mapping[str, str]) -> None:
    """Raise ConfigError if the `ssl.truststore.*` properties contradict each other.

    Otherwise the system's certificate authorities would be trusted by mistake.
    """
    certificates, location = (
        kafka.get(f"ssl.truststore.{name}") for name in ("certificates", "location")
    )
    if certificates is not None and not certificates.strip():
        raise ConfigError(
            "`kafka.ssl.truststore.certificates` is empty. Set PEM certificates, or remove it."
        )
    if certificates is not None and location is not None:
        raise ConfigError(
            "Set `kafka.ssl.truststore.location` or `kafka.ssl.truststore.certificates`, not both."
        )
    if certificates is None and location is None and kafka.get("ssl.truststore.password"):
        raise ConfigError(
            "`kafka.ssl.truststore.password` is set without `kafka.ssl.truststore.location`. Set "
            "the location, or remove the password to trust the system's authorities."
        )


def _limit_versions(context: ssl.SSLContext, names: str) -> None:
    enabled = [name.strip() for name in names.split(",")]
    for name in enabled:
        if name not in _VERSIONS:
            raise ConfigError(
                f"`kafka.ssl.enabled.protocols` must be of {', '.join(_VERSIONS)}, got {name!r}."
            )
    versions = [_VERSIONS[name] for name in enabled]
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _trusted(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the arguments `cafile` or `cadata` of `ssl.create_default_context`.

    Return an empty dict to trust the system's certificate authorities.
    """
    if (certificates := kafka.get("ssl.truststore.certificates")) is not None:
        return {"cadata": certificates}
    if (data := _read_store(kafka, "truststore")) is None:
        return {}
    if _is_pem(data):
        return {"cafile": kafka["ssl.truststore.location"]}
    with _named(kafka, "truststore"):
        store = read_key_store(data, kafka.get("ssl.truststore.password"))
        if not store.trusted:
            raise ConfigError("it has no trusted certificate.")
    return {"cadata": "".join(store.trusted)}


def _load_client_certificate(context: ssl.SSLContext, kafka: Mapping[str, str]) -> None:
    """Load the client's certificate into the TLS context, if the properties have one."""
    password = kafka.get("ssl.key.password")
    if (data := _read_store(kafka, "keystore")) is None:
        chain, key = kafka.get("ssl.keystore.certificate.chain"), kafka.get("ssl.keystore.key")
        if chain is None and key is None:
            return
        pem = f"{key or ''}\n{chain or ''}\n"
    elif _is_pem(data):
        context.load_cert_chain(kafka["ssl.keystore.location"], password=password)
        return
    else:
        with _named(kafka, "keystore"):
            store = read_key_store(data, kafka.get("ssl.keystore.password"), password)
            if len(store.keys) != 1:
                raise ConfigError(f"it must have one private key, and has {len(store.keys)}.")
        ((key, certificates),) = store.keys
        pem, password = "".join([key, *certificates]), None
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # `ssl` loads it from files only
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, password=password)


def _read_store(kafka: Mapping[str, str], store: str) -> bytes | None:
    """Return the content of a key store or trust store, or None if `ssl.*.location` is not set.

    Raise ConfigError if `ssl.*.type` does not fit the content. The types JKS and PKCS12 stand for
    each other, because Java reads both formats with either type.
    """
    location = kafka.get(f"ssl.{store}.location")
    if location is None:
        return None
    kind = kafka.get(f"ssl.{store}.type", "").strip().upper()
    data = Path(location).read_bytes()
    allowed = ("", "PEM") if _is_pem(data) else ("", "JKS", "PKCS12")
    if kind not in allowed:
        form = "a PEM file" if _is_pem(data) else "not a PEM file"
        raise ConfigError(
            f"`kafka.ssl.{store}.type` is {kind}, and `kafka.ssl.{store}.location` {location} is "
            f"{form}. The types are PEM, PKCS12 and JKS. Convert others with `keytool "
            "-importkeystore -deststoretype pkcs12`."
        )
    return data


@contextmanager
def _named(kafka: Mapping[str, str], store: str) -> Iterator[None]:
    """Add the option and the file name to each ConfigError that is raised in the context."""
    try:
        yield
    except ConfigError as error:
        location = kafka[f"ssl.{store}.location"]
        raise ConfigError(
            f"`kafka.ssl.{store}.location` {location} cannot be used: {error}"
        ) from None


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN" in data[: 64 * 1024]
