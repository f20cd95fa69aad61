"""Errors of connections to brokers."""

from typing import ClassVar

from asyncconsumer.errors.base import ConsumerError


class BrokerConnectionError(ConsumerError):
    """A connection or request to a broker failed. ``address`` is the broker."""

    advice: ClassVar[str] = ""

    def __init__(self, address: object, reason: str) -> None:
        super().__init__(address, reason)
        self.address = str(address)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.address}: {self.reason}. {self.advice}".rstrip(" ")


class ConnectFailed(BrokerConnectionError):
    """A connection was not established: refused, unreachable, unknown host, timeout or reset."""

    retriable = True
    advice = "Check that a broker listens at this address and that no firewall blocks it"


class ConnectionLost(BrokerConnectionError):
    """The connection was lost with requests in flight, which may or may not have been applied."""

    retriable = True
    advice = "Retry on a new connection"


class RequestTimedOut(BrokerConnectionError):
    """A request timed out. The connection is closed, because responses arrive in order."""

    retriable = True
    advice = "Retry, or raise `request_timeout_ms`"


class HostNotAllowed(BrokerConnectionError):
    """A broker's address is not in ``allowed_hosts``, so this client does not connect to it."""

    advice = (
        "If the host is one of your brokers, add it to `allowed_hosts`. Otherwise check the source "
        "of this address"
    )


class NoBrokerAnswered(ConsumerError):
    """No broker answered. ``errors`` has the error of each broker."""

    retriable = True

    def __init__(self, errors: tuple[ConsumerError, ...]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        reasons = "; ".join(str(error) for error in self.errors)
        return f"no broker answered: {reasons or 'no broker is known'}"


class FrameTooLarge(BrokerConnectionError):
    """A response is larger than ``max_frame_bytes``, or the data is not a Kafka response."""

    advice = (
        "Check that a Kafka broker listens at this address. If so, raise `max_frame_bytes` or "
        "lower `fetch_max_bytes`"
    )


class UnsupportedBroker(BrokerConnectionError):
    """The broker and this client have no version of a request in common."""

    advice = "This client supports Kafka 1.0 and newer. Remove options that need a newer broker"


class AuthenticationFailed(BrokerConnectionError):
    """The broker or this client rejected the other side's authentication.

    This error is not retriable. Subclasses name the usual causes. This class is raised for all
    other causes.
    """

    advice = "Check `security_protocol` and the `sasl_*` and `ssl_*` options for this listener"


class WrongCredentials(AuthenticationFailed):
    """The broker rejected the user name or the password."""

    advice = "Check `sasl_plain_username` and `sasl_plain_password`"


class WrongMechanism(AuthenticationFailed):
    """The broker does not support ``sasl_mechanism``.

    ``offered`` has the mechanisms that it supports.
    """

    advice = "Set `sasl_mechanism` to one of them"

    def __init__(self, address: object, requested: str, offered: tuple[str, ...]) -> None:
        super().__init__(address, f"no {requested} here, the broker offers {', '.join(offered)}")
        self.args = (address, requested, offered)  # for copies and pickles
        self.offered = offered


class TokenRefused(AuthenticationFailed):
    """The broker rejected the OAuth token, which may be expired or for another cluster."""

    advice = "Check that `sasl_oauth_token_provider` returns fresh tokens for this cluster"


class TokenUnavailable(AuthenticationFailed):
    """The token provider raised an exception, which is the cause of this error."""

    retriable = True
    advice = "Check `sasl_oauth_token_provider` and the server that issues its tokens"


class TokenNotIssued(AuthenticationFailed):
    """The identity provider issued no token. The cause of this error has the provider's answer."""

    advice = "Check the client id, the client secret and the scope at the identity provider"


class TokenRequestFailed(ConsumerError):
    """The request for an OAuth token failed. ``url`` is the endpoint."""

    retriable = True
    advice: ClassVar[str] = "Check that the endpoint can be reached"

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url = url
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.url}: {self.reason}. {self.advice}"


class TokenRequestRefused(TokenRequestFailed):
    """The token endpoint rejected the request. This error is not retriable."""

    retriable = False
    advice = "Check the URL, the client id, the client secret and the scope"


class TlsFailed(AuthenticationFailed):
    """The TLS handshake failed. The subclasses name the usual causes."""

    advice = "Check that this client and the broker have a TLS version and a cipher in common"


class CertificateRefused(TlsFailed):
    """The broker's certificate is not trusted: unknown authority, or expired."""

    advice = "Set `ssl_cafile` to the certificate of the authority that signed it"


class WrongHost(TlsFailed):
    """The broker's certificate is for another host name."""

    advice = "Connect with a name in the certificate, or reissue the certificate for this name"


class ClientCertificateRefused(TlsFailed):
    """The broker does not trust the client certificate, or this client sent none."""

    advice = "Set `ssl_certfile` and `ssl_keyfile` to a certificate that the broker trusts"


class NotTls(TlsFailed):
    """One side of the connection uses TLS and the other one does not."""

    advice = "Set `security_protocol` to the protocol of this listener"
