"""The properties of Java clients that have another name in this package, or no counterpart."""

import re
import textwrap
from collections.abc import Mapping
from typing import Final

from asyncconsumer.config.consumer import OTHER_CLIENTS_ONLY
from asyncconsumer.config.jaas import parse_jaas
from asyncconsumer.config.producer import OTHER_PRODUCERS_ONLY
from asyncconsumer.config.setting import Setting
from asyncconsumer.config.tls import refuse_tls_options
from asyncconsumer.errors import ConfigError

ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
"""The assignors of the Java client by the names of their classes."""
_PEM_TEXTS: Final = {
    "ssl_truststore_certificates": "ssl_cafile",
    "ssl_keystore_certificate_chain": "ssl_certfile",
    "ssl_keystore_key": "ssl_keyfile",
    "ssl_key_password": "ssl_password",
}
_PEM_BLOCK: Final = re.compile(
    r"(-----BEGIN [A-Z0-9 ]+-----)([A-Za-z0-9+/=\s]*)(-----END [A-Z0-9 ]+-----)\s*"
)
_STORES: Final = {"ssl_truststore": "ssl_cafile", "ssl_keystore": "ssl_certfile"}
_PROVIDER: Final = (
    "Remove it, and set `sasl_oauthbearer_token_endpoint_url` or `sasl_oauth_token_provider`"
)
_MSK_HANDLERS: Final = (
    "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
)
_OIDC_HANDLERS: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
_TICKET: Final = "Remove it, and create a ticket with kinit or set KRB5_CLIENT_KTNAME to a keytab"
_MEASURES: Final = "Remove it. `status()` and `events()` report measurements"
_SYSTEM_SIZES: Final = "Remove it, because the operating system sizes the buffer"
_NO_MEANING: Final = {
    "auto_include_jmx_reporter": _MEASURES,
    "client_dns_lookup": "Remove it",
    "config_providers": "Remove it, and set secrets in environment variables",
    "enable_metrics_push": _MEASURES,
    "interceptor_classes": "Remove it, and pass `interceptors` as a keyword argument",
    "key_deserializer": "Remove it, and pass `key_deserializer` as a keyword argument",
    "metric_reporters": _MEASURES,
    "receive_buffer_bytes": _SYSTEM_SIZES,
    "sasl_client_callback_handler_class": _PROVIDER,
    "security_providers": "Remove it, because OpenSSL does the encryption",
    "send_buffer_bytes": _SYSTEM_SIZES,
    "socket_connection_setup_timeout_max_ms": "Set `connect_timeout_ms`",
    "socket_connection_setup_timeout_ms": "Set `connect_timeout_ms`",
    "value_deserializer": "Remove it, and pass `value_deserializer` as a keyword argument",
}
_ALWAYS: Final = {"acks": ("all", "-1"), "enable_idempotence": ("true",)}
"""Properties of Java producers, with the values that producers of this package always have."""
_NO_MEANING_PREFIXES: Final = {
    "metrics_": _MEASURES,
    "sasl_kerberos_kinit_": _TICKET,
    "sasl_kerberos_min_time_": _TICKET,
    "sasl_kerberos_ticket_": _TICKET,
    "sasl_login_": _PROVIDER,
    "sasl_oauthbearer_": _PROVIDER,
}


def translate(settings: Mapping[str, Setting]) -> list[Setting]:
    """Return the settings, with properties of Java clients translated to options.

    `settings` maps names, with underscores in place of dots, to settings.
    """
    remaining = dict(settings)
    result: list[Setting] = []
    for translation in (_handlers, _login, _stores, _pem_texts, _host_verification, _always):
        result += translation(remaining)
    return [*result, *remaining.values()]


def refuse_java_key(name: str) -> None:
    """Raise ConfigError if `name` is a Java property without counterpart.

    The message says what to do.
    """
    plain = name.replace(".", "_")
    others = OTHER_CLIENTS_ONLY | OTHER_PRODUCERS_ONLY
    advice = _NO_MEANING.get(plain) or others.get(plain)
    for prefix, text in _NO_MEANING_PREFIXES.items():
        if plain.startswith(prefix):
            advice = text
    if advice:
        raise ConfigError(f"`{name}` has no meaning for this client. {advice}")
    refuse_tls_options([name])


def token_provider(handler: str) -> str | None:
    """Return the name of the token provider for a Java callback handler, or None for an OIDC one.

    Raise ConfigError for a handler without a counterpart.
    """
    if handler in _MSK_HANDLERS:
        return "asyncconsumer:MskIam"
    if handler in _OIDC_HANDLERS:
        return None
    raise ConfigError(f"the callback handler {handler} is a Java class. {_PROVIDER}")


def _handlers(settings: dict[str, Setting]) -> list[Setting]:
    """Translate callback handler classes for OAUTHBEARER and AWS to token providers."""
    mechanism = settings.get("sasl_mechanism")
    if mechanism is not None and mechanism.text().strip().upper() == "AWS_MSK_IAM":
        settings["sasl_mechanism"] = mechanism.renamed(mechanism.name, "OAUTHBEARER")
        settings.pop("sasl_jaas_config", None)  # for MSK IAM it has no user name
    providers: dict[str, Setting] = {}
    for side in ("login", "client"):
        setting = settings.pop(f"sasl_{side}_callback_handler_class", None)
        if setting is None:
            continue
        with setting.named_in_errors():
            provider = token_provider(setting.text().strip())
        if provider is not None:
            providers[provider] = setting.renamed("sasl_oauth_token_provider", provider)
    return list(providers.values())


def _login(settings: dict[str, Setting]) -> list[Setting]:
    setting = settings.pop("sasl_jaas_config", None)
    if setting is None:
        return []
    mechanism = settings.get("sasl_mechanism")
    with setting.named_in_errors():
        login = parse_jaas(
            setting.text(), None if mechanism is None else mechanism.text().strip().upper()
        )
    return [setting.renamed(name, value) for name, value in login.items()]


def _always(settings: dict[str, Setting]) -> list[Setting]:
    """Remove Java properties with the value that this package always has, such as ``acks=all``.

    A Java program may use the same properties file. A property with another value stays, and
    raises an error later. Return an empty list, because no option replaces these properties.
    """
    for name, values in _ALWAYS.items():
        if name in settings and str(settings[name].value).strip().lower() in values:
            del settings[name]
    return []


def _stores(settings: dict[str, Setting]) -> list[Setting]:
    """Translate the locations of the key store and the trust store, which must be PEM files."""
    result = []
    for store, option in _STORES.items():
        kind = settings.pop(f"{store}_type", None)
        location = settings.pop(f"{store}_location", None)
        password = settings.pop(f"{store}_password", None)
        is_pem = kind is not None and kind.text().strip().upper() == "PEM"
        if (wrong := location or kind) is not None and not is_pem:
            with wrong.named_in_errors():
                raise ConfigError(
                    f"`{wrong.name}` is a store of a type that Java only reads. Export it to a PEM "
                    "file, for example with keytool and openssl pkcs12, and set "
                    f"`{store.replace('_', '.')}.type` to PEM, or set `{option}`"
                )
        if password is not None:
            with password.named_in_errors():
                raise ConfigError(
                    f"`{password.name}` has no meaning for PEM files. Remove it, and set "
                    "`ssl.key.password` if the private key is encrypted"
                )
        if location is not None:
            result.append(location.renamed(option))
    return result


def _pem_texts(settings: dict[str, Setting]) -> list[Setting]:
    settings_by_option = {
        option: settings.pop(name) for name, option in _PEM_TEXTS.items() if name in settings
    }
    return [
        setting.renamed(option, _PEM_BLOCK.sub(_wrapped, setting.text()))
        for option, setting in settings_by_option.items()
    ]


def _wrapped(match: re.Match[str]) -> str:
    """Return a PEM block with line breaks, which OpenSSL requires and Java does not."""
    head, body, tail = match.groups()
    return "\n".join([head, *textwrap.wrap("".join(body.split()), 64), tail, ""])


def _host_verification(settings: dict[str, Setting]) -> list[Setting]:
    """Remove the property for host name verification. Raise ConfigError unless it is https.

    Return an empty list. Only an `ssl_context` can turn the verification off.
    """
    setting = settings.pop("ssl_endpoint_identification_algorithm", None)
    if setting is not None and setting.text().strip().lower() != "https":
        with setting.named_in_errors():
            raise ConfigError(
                f"`{setting.name}` must be https, because host names are verified. To turn this "
                "off, pass `ssl_context` with check_hostname=False as a keyword argument"
            )
    return []
