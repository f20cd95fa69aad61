"""The TLS and SASL properties of Java clients, translated to `ConnectionConfig`."""

import re
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options.oauth import PROPERTY, token_provider

_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")
_JAAS_OPTION: Final = re.compile(
    r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|(\S+))"""
)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_IDENTIFICATION: Final = "ssl.endpoint.identification.algorithm"
_TRUST_MANAGER: Final = "ssl.trustmanager.algorithm"
_TRUST_MANAGERS: Final = ("PKIX", "SUNX509", "X509")

TAKEN: Final = {
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    PROPERTY,
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.certificates",
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
    """Return the options of `ConnectionConfig` for these properties."""
    protocol = kafka.get("security.protocol", "PLAINTEXT").strip().upper()
    found: dict[str, Any] = {"security_protocol": protocol}
    checks_host_names = _checks_host_names(kafka)
    if protocol.startswith("SASL"):
        mechanism = kafka.get("sasl.mechanism", "GSSAPI").strip().upper()
        found["sasl_mechanism"] = mechanism
        if mechanism == "PLAIN" or mechanism.startswith("SCRAM"):
            found |= _login(kafka.get("sasl.jaas.config", ""), mechanism)
        elif mechanism == "OAUTHBEARER":
            provider = token_provider(kafka.get(PROPERTY, "").strip())
            found["sasl_oauth_token_provider"] = provider
    if protocol.endswith("SSL"):
        found["ssl_context"] = context = _ssl_context(kafka)
        context.check_hostname = checks_host_names
    return found


def _checks_host_names(kafka: Mapping[str, str]) -> bool:
    """Return whether certificates must name the host: true for https, false if empty."""
    given = kafka.get(_IDENTIFICATION, "https")
    if (algorithm := given.strip().lower()) not in ("https", ""):
        raise ConfigError(
            f"kafka.{_IDENTIFICATION} must be https, or empty to accept certificates of any host, "
            f"got {given!r}"
        )
    if (manager := kafka.get(_TRUST_MANAGER, "PKIX").strip()).upper() not in _TRUST_MANAGERS:
        raise ConfigError(
            f"kafka.{_TRUST_MANAGER} must be {' or '.join(_TRUST_MANAGERS)}, which check as "
            f"OpenSSL does, got {manager!r}: Java's other trust managers cannot run here"
        )
    return bool(algorithm)


def _login(jaas: str, mechanism: str) -> dict[str, str]:
    """Return the login from a line like `...PlainLoginModule required username="u" ...;`."""
    module, rest = [*jaas.strip().rstrip(";").split(None, 1), "", ""][:2]
    if module.rpartition(".")[2] not in _MODULES:
        raise ConfigError(  # not the line: it has a password
            f"kafka.sasl.mechanism {mechanism} needs kafka.sasl.jaas.config with one of "
            f"{', '.join(_MODULES)}, e.g. 'org.apache.kafka.common.security.plain.PlainLoginModule "
            'required username="..." password="...";\''
        )
    given = {
        name: double or single or bare for name, double, single, bare in _JAAS_OPTION.findall(rest)
    }
    for name in ("username", "password"):
        if name not in given:
            raise ConfigError(f'kafka.sasl.jaas.config has no {name}="..."')
    unescaped = {name: re.sub(r"\\(.)", r"\1", given[name]) for name in ("username", "password")}
    return {
        "sasl_plain_username": unescaped["username"],
        "sasl_plain_password": unescaped["password"],
    }


def _ssl_context(kafka: Mapping[str, str]) -> ssl.SSLContext:
    _check_truststore(kafka)
    try:
        context = ssl.create_default_context(
            cafile=_pem(kafka, "truststore"), cadata=kafka.get("ssl.truststore.certificates")
        )
        _load_own(context, kafka)
        if (names := kafka.get("ssl.enabled.protocols")) is not None:
            _limit_versions(context, names)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(f"the kafka.ssl.* options do not work: {error}") from None
    return context


def _check_truststore(kafka: Mapping[str, str]) -> None:
    """Raise if the system's authorities would be trusted although others were meant."""
    certificates, location = (
        kafka.get(f"ssl.truststore.{name}") for name in ("certificates", "location")
    )
    if certificates is not None and not certificates.strip():
        raise ConfigError("kafka.ssl.truststore.certificates is empty: give PEM, or leave it out")
    if certificates is not None and location is not None:
        raise ConfigError("give kafka.ssl.truststore.location or .certificates, not both")
    if certificates is None and location is None and kafka.get("ssl.truststore.password"):
        raise ConfigError(
            "kafka.ssl.truststore.password is set and kafka.ssl.truststore.location is not: name "
            "the truststore, or leave out the password to trust the system's authorities"
        )


def _limit_versions(context: ssl.SSLContext, names: str) -> None:
    given = [name.strip() for name in names.split(",")]
    for name in given:
        if name not in _VERSIONS:
            raise ConfigError(
                f"kafka.ssl.enabled.protocols: {name!r} is none of {', '.join(_VERSIONS)}"
            )
    versions = [_VERSIONS[name] for name in given]
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _load_own(context: ssl.SSLContext, kafka: Mapping[str, str]) -> None:
    """Load the client's certificate, if there is one."""
    password = kafka.get("ssl.key.password")
    if (own := _pem(kafka, "keystore")) is not None:
        context.load_cert_chain(own, password=password)
        return
    chain, key = kafka.get("ssl.keystore.certificate.chain"), kafka.get("ssl.keystore.key")
    if chain is None and key is None:
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # `ssl` loads it from files only
        file.write(f"{key or ''}\n{chain or ''}\n")
        file.flush()
        context.load_cert_chain(file.name, password=password)


def _pem(kafka: Mapping[str, str], store: str) -> str | None:
    location = kafka.get(f"ssl.{store}.location")
    if location is None:
        return None
    kind = kafka.get(f"ssl.{store}.type", "").strip().upper()
    if kind != "PEM" and (kind or not _is_pem(location)):
        raise ConfigError(
            f"kafka.ssl.{store}.location {location}: only PEM files are read, this is "
            f"{kind or 'none'}. `keytool -importkeystore -deststoretype pkcs12` and `openssl "
            f"pkcs12 -nodes` make one; then set kafka.ssl.{store}.type to PEM"
        )
    return location


def _is_pem(location: str) -> bool:
    with Path(location).open("rb") as file:
        return b"-----BEGIN" in file.read(64 * 1024)
