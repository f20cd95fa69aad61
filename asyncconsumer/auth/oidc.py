"""Tokens of an OIDC identity provider, by the client credentials grant of OAuth 2."""

import base64
import json
import logging
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

from asyncconsumer.auth.cache import CachingTokenProvider, IssuedToken
from asyncconsumer.errors import ConfigError, TokenRequestFailed, TokenRequestRefused

_log: Final = logging.getLogger(__name__)
_MAX_RESPONSE_BYTES: Final = 2**20
_LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


class Oidc(CachingTokenProvider):
    """A token provider for `sasl_oauth_token_provider` that requests tokens from an OIDC endpoint.

    It uses the client credentials grant. ``extensions`` are SASL extensions, such as
    ``{"logicalCluster": "lkc-1"}``. ``parameters`` are more fields of the request, such as
    ``{"audience": "kafka"}``. Without ``ssl_context``, the system's certificate authorities are
    trusted.
    """

    def __init__(
        self,
        token_url: str,
        client_id: str,
        client_secret: str,
        *,
        scope: str | None = None,
        extensions: Mapping[str, str] | None = None,
        parameters: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        timeout_ms: int = 10_000,
    ) -> None:
        super().__init__()
        _check_url(token_url)
        for name, value in (("client_id", client_id), ("client_secret", client_secret)):
            if not value or not isinstance(value, str):
                raise ConfigError(f"Oidc needs `{name}`, which must be a text that is not empty")
        self.token_url = token_url
        self.client_id = client_id
        self._client_secret = client_secret
        fields = {"grant_type": "client_credentials", **(parameters or {})}
        self._body = urlencode(fields | ({"scope": scope} if scope else {})).encode()
        self._extensions = dict(extensions or {})
        self._timeout = timeout_ms / 1000
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if token_url.startswith("https:"):
            context = ssl_context or ssl.create_default_context()
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def __repr__(self) -> str:
        return f"Oidc({self.token_url!r}, {self.client_id!r})"

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions to send with the token."""
        return self._extensions

    def request_token(self) -> IssuedToken:
        """Request a new token from the token endpoint."""
        login = f"{quote_plus(self.client_id)}:{quote_plus(self._client_secret)}"
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            self.token_url,
            self._body,
            {
                "Accept": "application/json",
                "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}",
                "Content-Type": "application/x-www-form-urlencoded",
            },
        )
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                data = response.read(_MAX_RESPONSE_BYTES)
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            raise TokenRequestFailed(self.token_url, f"the request failed: {reason}") from None
        return self._parse(data)

    def _refusal(self, error: urllib.error.HTTPError) -> TokenRequestFailed:
        with error:
            details = _json_object(error.read(_MAX_RESPONSE_BYTES)) or {}
        texts = [str(details[name]) for name in ("error", "error_description") if name in details]
        reason = f"the response has the status {error.code}"
        if texts:
            reason += f" ({': '.join(texts)[:500]})"
        reason = reason.replace(self._client_secret, "***")
        is_final = 300 <= error.code < 500 and error.code not in (408, 425, 429)
        kind = TokenRequestRefused if is_final else TokenRequestFailed
        return kind(self.token_url, reason)

    def _parse(self, data: bytes) -> IssuedToken:
        response = _json_object(data) or {}
        token, lifetime = response.get("access_token"), response.get("expires_in")
        if not isinstance(token, str) or not token:
            raise TokenRequestRefused(self.token_url, "the response has no `access_token`")
        try:
            seconds = _lifetime(token) if lifetime is None else float(lifetime)
        except (TypeError, ValueError):
            seconds = 0.0
        return IssuedToken(token, max(seconds, 0.0))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that rejects redirects, because they would send the secret to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - urllib's signature
        return None


def _check_url(url: object) -> None:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("The token URL of OIDC must begin with https:// and have a host name")
    if parts.username is not None:
        raise ConfigError("The token URL of OIDC must not contain a login. Set the client id")
    if parts.scheme == "http" and parts.hostname not in _LOCAL_HOSTS:
        _log.warning("the client secret is sent without TLS to %s", parts.hostname)


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _lifetime(token: str) -> float:
    """Return the seconds until a JWT expires by its `exp` claim, or 0 if it has none."""
    payload = [*token.split("."), ""][1]
    try:
        claims = _json_object(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except ValueError:
        return 0.0
    return float((claims or {}).get("exp", 0)) - datetime.now(UTC).timestamp()
