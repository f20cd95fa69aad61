"""SSL contexts made from the ``ssl_*`` options, and advice for the TLS options of other clients."""

import os
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from asyncconsumer.config.redaction import is_path
from asyncconsumer.errors import ConfigError

TLS_OPTIONS: Final = ("ssl_context", "ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")
_PEM: Final = "-----BEGIN "
_SYNONYMS: Final = {
    "ssl_cadata": "ssl_cafile",
    "ssl_ca_location": "ssl_cafile",
    "ssl_ca_pem": "ssl_cafile",
    "ssl_truststore_certificates": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_certificate_pem": "ssl_certfile",
    "ssl_keystore_certificate_chain": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_pem": "ssl_keyfile",
    "ssl_keystore_key": "ssl_keyfile",
    "ssl_key_password": "ssl_password",
}


def create_context(
    cafile: str | None, certfile: str | None, keyfile: str | None, password: str | None
) -> ssl.SSLContext:
    """Return an SSL context that verifies brokers. The files are paths or PEM strings.

    Without `cafile` the certificate authorities of the system are trusted.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cafile is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts only the given authorities
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with _path("ssl_cafile", cafile) as path, _reported("ssl_cafile"):
            context.load_verify_locations(path)
    if certfile is not None:
        with (
            _path("ssl_certfile", certfile) as certificate,
            _path("ssl_keyfile", keyfile) as key,
            _reported("ssl_certfile"),
        ):
            # without a password, OpenSSL would ask for one on the terminal
            context.load_cert_chain(certificate or "", key, password or (lambda: ""))
    return context


@contextmanager
def _path(option: str, value: str | None) -> Iterator[str | None]:
    """Return a context manager that yields the path of a PEM file, or None for no value.

    A PEM string is written to a private temporary file.
    """
    if value is None or not value.lstrip().startswith(_PEM):
        if value is not None and not os.access(value, os.R_OK):
            shown = f" {value!r}" if is_path(value) else ""  # otherwise it may be a private key
            raise ConfigError(f"`{option}`{shown} cannot be read. Check the path and its access")
        yield value
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(value)
        file.flush()
        yield file.name


@contextmanager
def _reported(option: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # the text of an SSLError has no contents
        advice = " and `ssl_password`" if option == "ssl_certfile" else ""
        reason = getattr(error, "reason", None) or "it is not valid"
        raise ConfigError(
            f"`{option}` cannot be loaded: {reason}. Check that it is PEM{advice}"
        ) from None


def refuse_tls_options(options: Iterable[str]) -> None:
    """Raise ConfigError for a TLS option of another client. The message names the option to use.

    The names of aiokafka, kafka-python, librdkafka and Java are known, with dots or underscores.
    """
    for name in options:
        plain = name.lower().replace(".", "_").replace("-", "_")
        if plain.startswith("ssl_") and plain not in TLS_OPTIONS:
            raise ConfigError(f"unknown option {name!r}. {_advice(plain)}")


def _advice(plain: str) -> str:
    if plain in _SYNONYMS:
        return f"Set `{_SYNONYMS[plain]}` to a path or a PEM string"
    if plain.startswith(("ssl_truststore", "ssl_keystore")):
        return (
            "Export the store to PEM files, for example with keytool and openssl pkcs12, and set "
            "`ssl_cafile`, `ssl_certfile` and `ssl_keyfile`"
        )
    context = "Set `ssl_context` to an ssl.SSLContext and"
    if plain in ("ssl_check_hostname", "ssl_endpoint_identification_algorithm"):
        return f"{context} its check_hostname to choose whether host names are verified"
    if "cipher" in plain:
        return f"{context} call its set_ciphers() to choose ciphers"
    if plain in ("ssl_crlfile", "ssl_crl_location"):
        return f"{context} call its load_verify_locations() for revocation lists"
    return "Set `ssl_cafile`, `ssl_certfile` and `ssl_keyfile`, or `ssl_context` for other settings"
