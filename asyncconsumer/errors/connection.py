"""What can happen between us and one broker."""

from typing import ClassVar

from asyncconsumer.errors.base import ConsumerError


class BrokerConnectionError(ConsumerError):
    """Something between us and one broker. ``address`` says which, ``reason`` what happened."""

    advice: ClassVar[str] = ""

    def __init__(self, address: object, reason: str) -> None:
        super().__init__(address, reason)
        self.address = str(address)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.address}: {self.reason}. {self.advice}".rstrip(" ")


class ConnectFailed(BrokerConnectionError):
    """No connection came about: refused, unreachable, unknown host, too slow, or cut."""

    retriable = True
    advice = "Check that a broker listens there and that nothing blocks the way"


class ConnectionLost(BrokerConnectionError):
    """The connection ended while requests were on their way; whether they took effect is open."""

    retriable = True
    advice = "Ask again on a new connection"


class RequestTimedOut(BrokerConnectionError):
    """No answer within the time allowed. The connection is closed: its answers have an order."""

    retriable = True
    advice = "Ask again, or allow more with request_timeout_ms"


class HostNotAllowed(BrokerConnectionError):
    """We were sent to a host that ``allowed_hosts`` does not name, and did not go there."""

    advice = "If it is one of your brokers, add it to allowed_hosts; if not, who named it is not"


class NoBrokerAnswered(ConsumerError):
    """Every broker known was asked and none answered. ``errors`` has their reasons."""

    retriable = True

    def __init__(self, errors: tuple[ConsumerError, ...]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        reasons = "; ".join(str(error) for error in self.errors)
        return f"no broker answered: {reasons or 'none is known'}"


class FrameTooLarge(BrokerConnectionError):
    """What came instead of a response, or a response larger than allowed; nothing was read."""

    advice = (
        "Is a Kafka broker listening there? If so, raise max_frame_bytes "
        "or ask for less with each fetch"
    )


class UnsupportedBroker(BrokerConnectionError):
    """The broker speaks no version of a request that we speak."""

    advice = "Brokers from Kafka 1.0 on are supported; leave out options that need a newer one"


class AuthenticationFailed(BrokerConnectionError):
    """The broker would not have us, or we would not have the broker. Trying again changes nothing.

    Also raised itself, for refusals that none of its kinds describes.
    """

    advice = "Check security_protocol and the options of its kind against the broker's listener"


class WrongCredentials(AuthenticationFailed):
    """The broker refused the user name or the password."""

    advice = "Check sasl_plain_username and sasl_plain_password"


class WrongMechanism(AuthenticationFailed):
    """The broker does not offer the SASL mechanism that was asked for. ``offered`` are those."""

    advice = "Set sasl_mechanism to one that it offers"

    def __init__(self, address: object, wanted: str, offered: tuple[str, ...]) -> None:
        super().__init__(address, f"no {wanted} here, the broker offers {', '.join(offered)}")
        self.args = (address, wanted, offered)  # what a copy is made from
        self.offered = offered


class TokenRefused(AuthenticationFailed):
    """The broker refused the OAuth token: expired, or not valid for it."""

    advice = "Check that sasl_oauth_token_provider returns fresh tokens for this cluster"


class TokenUnavailable(AuthenticationFailed):
    """Your token provider raised; its error is the cause of this one."""

    retriable = True
    advice = "Check sasl_oauth_token_provider and what it gets its tokens from"


class TlsFailed(AuthenticationFailed):
    """The TLS handshake failed in a way that none of the other kinds describes."""

    advice = "Check that ssl_context and the broker allow a common TLS version and cipher"


class CertificateRefused(TlsFailed):
    """We do not trust the broker's certificate: unknown authority, or out of date."""

    advice = "Load the authority that signed it: ssl.create_default_context(cafile=...)"


class WrongHost(TlsFailed):
    """The broker's certificate was made out to another name."""

    advice = "Connect by a name in the certificate, or have it reissued for this one"


class ClientCertificateRefused(TlsFailed):
    """The broker does not trust our certificate, or we showed none."""

    advice = "Load one that it trusts: ssl_context.load_cert_chain(...)"


class NotTls(TlsFailed):
    """One side speaks TLS and the other does not."""

    advice = "Match security_protocol to the broker's listener"
