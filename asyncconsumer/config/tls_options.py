"""The refusal of TLS options of other clients, which `ssl_context` replaces."""

from collections.abc import Iterable
from typing import Final

from asyncconsumer.errors import ConfigError

_OURS: Final = "ssl_context"
_CONTEXT: Final = (
    "aiokafka.helpers.create_ssl_context(cafile='ca.pem', certfile='client.pem', "
    "keyfile='client.key', password='...')"
)
_FROM_JAVA: Final = "Export the store to PEM files first, e.g. with keytool and openssl pkcs12. "


def refuse_tls_options(options: Iterable[str]) -> None:
    """Raise for the first option such as ``ssl_cafile``; the message has the replacement.

    The names of aiokafka, kafka-python, librdkafka and Java are known, with dots or underscores.
    """
    for name in options:
        plain = name.lower().replace(".", "_").replace("-", "_")
        if not plain.startswith("ssl_") or plain == _OURS:
            continue
        first = _FROM_JAVA if "store_" in plain else ""
        raise ConfigError(
            f"there is no {name}: give ssl_context, which has all TLS settings. {first}"
            f"Make it with {_CONTEXT}; {_advice(plain)}"
        )


def _advice(plain: str) -> str:
    if plain in ("ssl_check_hostname", "ssl_endpoint_identification_algorithm"):
        return "its check_hostname says whether the name of a broker is checked"
    if "cipher" in plain:
        return "its set_ciphers() chooses ciphers"
    if plain in ("ssl_crlfile", "ssl_crl_location"):
        return "its load_verify_locations() and verify_flags are for revocation lists"
    return "leave out what you do not need, and set security_protocol to SSL or SASL_SSL"
