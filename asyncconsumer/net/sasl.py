"""The ApiVersions request and aiokafka's SASL logins, over a `BrokerConnection`."""

import asyncio
import re
from collections.abc import Awaitable
from typing import Final

from asyncconsumer.aiokafka_parts import (
    AIOKafkaConnection,
    OAuthAuthenticator,
    Request,
    Response,
    SaslAuthenticateRequest,
    SaslHandShakeRequest,
    ScramAuthenticator,
)
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import (
    AuthenticationFailed,
    ConsumerError,
    TokenNotIssued,
    TokenRefused,
    TokenRequestFailed,
    TokenUnavailable,
    WrongCredentials,
    WrongMechanism,
)
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.types import Address

_UNSUPPORTED_MECHANISM: Final = 33
_MAX_ITERATIONS: Final = 1_000_000  # Kafka's own maximum is 16,384
# A connection is replaced well before the broker ends its SASL session.
_SESSION_FACTOR: Final = 0.85


class Login(AIOKafkaConnection):
    """The login code of aiokafka's connection, run over a `BrokerConnection`.

    The socket, reader task and timers of aiokafka are not used. This class logs no request, because
    aiokafka's own `send` logs each request at DEBUG, including the password.
    """

    def __init__(self, connection: BrokerConnection, config: ConnectionConfig) -> None:
        super().__init__(
            *connection.address,
            client_id=config.client_id,
            security_protocol=config.security_protocol,
            sasl_mechanism=config.sasl_mechanism,
            sasl_plain_username=config.sasl_plain_username,
            sasl_plain_password=config.sasl_plain_password,
            sasl_kerberos_service_name=config.sasl_kerberos_service_name,
            sasl_kerberos_domain_name=config.sasl_kerberos_domain_name,
            sasl_oauth_token_provider=config.sasl_oauth_token_provider,
        )
        self._connection = connection
        self._config = config
        self._oauth = _StrictOAuth(connection.address, config.sasl_oauth_token_provider)

    async def run(self) -> None:
        """Request the API versions of the broker, and log in if configured."""
        try:
            await self._do_version_lookup()
            self._connection.versions = self._versions
            if self._config.logs_in:
                await self._do_sasl_handshake()
        except ConsumerError:
            raise
        except Exception as error:
            # aiokafka parses data of the broker, and may raise any exception
            reason = (
                f"the broker's response to the login is invalid: {type(error).__name__}: {error}"
            )
            raise AuthenticationFailed(self._connection.address, reason) from error

    def send(
        self,
        request: Request,
        expect_response: bool = True,  # noqa: FBT001, FBT002 - aiokafka's signature
    ) -> Awaitable[Response]:
        """Send a request over the `BrokerConnection`.

        Raise a typed error if the broker refuses it.
        """
        return self._exchange(request)

    async def _exchange(self, request: Request) -> Response:
        response = await self._connection.request(request)
        if isinstance(request, SaslHandShakeRequest) and response.error_code:
            raise self._handshake_refused(response)
        if isinstance(request, SaslAuthenticateRequest):
            if response.error_code:
                raise self._login_refused(response.error_message or "the broker gave no reason")
            if lifetime_ms := getattr(response, "session_lifetime_ms", 0):
                now = asyncio.get_running_loop().time()
                self._connection.expires = now + lifetime_ms / 1000 * _SESSION_FACTOR
        return response

    def _handshake_refused(self, response: Response) -> AuthenticationFailed:
        address, mechanism = self._connection.address, self._config.sasl_mechanism
        if response.error_code == _UNSUPPORTED_MECHANISM:
            return WrongMechanism(address, str(mechanism), tuple(response.enabled_mechanisms or ()))
        reason = (
            f"the broker accepts no login on this listener (broker error {response.error_code})"
        )
        return AuthenticationFailed(address, reason)

    def _login_refused(self, reason: str) -> AuthenticationFailed:
        if self._config.sasl_mechanism == "OAUTHBEARER":
            return TokenRefused(self._connection.address, _mask(self._oauth.token, reason))
        password = self._config.sasl_plain_password
        kind = WrongCredentials if password else AuthenticationFailed
        return kind(self._connection.address, _mask(password, reason))

    def authenticator_scram(self) -> ScramAuthenticator:
        """Return a SCRAM authenticator that limits the number of hash iterations."""
        return _LimitedScram(
            loop=self._loop,
            sasl_plain_password=self._sasl_plain_password,
            sasl_plain_username=self._sasl_plain_username,
            sasl_mechanism=self._sasl_mechanism,
        )

    def authenticator_oauth(self) -> OAuthAuthenticator:
        """Return an OAUTHBEARER authenticator that detects refused tokens."""
        return self._oauth


def _mask(secret: str | None, reason: str) -> str:
    """Return `reason`, a text that a broker sent, with each occurrence of `secret` replaced.

    A broker may repeat the password or token in its reason.
    """
    return reason.replace(secret, "***") if secret else reason


class _LimitedScram(ScramAuthenticator):
    """A SCRAM authenticator with a limit of hash iterations.

    The broker chooses their number, and a very large one would block a thread.
    """

    def process_server_first_message(self, server_first: str) -> None:
        match = re.search(r"(?:^|,)i=(\d{1,9})(?:,|$)", server_first)
        if match is None or int(match[1]) > _MAX_ITERATIONS:
            raise ValueError(f"the broker requests more than {_MAX_ITERATIONS} iterations")
        super().process_server_first_message(server_first)


class _StrictOAuth(OAuthAuthenticator):
    """An OAUTHBEARER authenticator that detects refused tokens.

    If a broker refuses a token, its response looks like success but contains a reason. The client
    then has to send one byte (RFC 7628), and the response to that byte is an error. aiokafka's own
    authenticator takes the first response for success.
    """

    def __init__(self, address: Address, provider: object) -> None:
        super().__init__(sasl_oauth_token_provider=provider)
        self.token = ""  # the token that was sent
        self._address = address
        self._refusal = ""

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        """Return the next bytes to send, and whether a response follows.

        Return None at the end of the login.
        """
        if not self._token_sent:
            return await self._first_step()
        if self._refusal:
            raise TokenRefused(self._address, self._refusal)
        if payload:
            self._refusal = _mask(self.token, payload.decode(errors="replace"))[:1000]
            return b"\x01", True
        return None

    async def _first_step(self) -> tuple[bytes, bool]:
        try:
            first: tuple[bytes, bool] = await super().step(None)
        except TokenRequestFailed as error:
            failure = TokenUnavailable if error.retriable else TokenNotIssued
            raise failure(self._address, str(error).removesuffix(".")) from error
        except Exception as error:
            reason = f"the token provider raised {type(error).__name__}"
            raise TokenUnavailable(self._address, reason) from error
        self.token = first[0].decode().partition("auth=Bearer ")[2].partition("\x01")[0]
        return first
