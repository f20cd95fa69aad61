"""The findings about a login that a broker rejected."""

import base64
import json
from datetime import UTC, datetime

from asyncconsumer.admin.diagnosis.finding import Finding, from_error
from asyncconsumer.aiokafka_parts import AbstractTokenProvider
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import AuthenticationFailed, TokenRefused
from asyncconsumer.types import Address


async def login_finding(
    address: Address, config: ConnectionConfig, error: AuthenticationFailed
) -> Finding:
    """Return a finding about a rejected login. For an expired token it tells when it expired."""
    provider = config.sasl_oauth_token_provider
    if isinstance(error, TokenRefused) and isinstance(provider, AbstractTokenProvider):
        try:
            expires = token_expiry(await provider.token())
        except Exception:  # noqa: BLE001 - providers are user code
            expires = None
        if expires is not None and expires < datetime.now(UTC):
            reason = f"the token expired at {expires:%Y-%m-%d %H:%M:%S} UTC ({error.reason})"
            advice = f"{error.advice}, and check the clock of this machine"
            return Finding("error", "sasl", str(address), reason, advice)
    return from_error("sasl", address, error)


def token_expiry(token: str) -> datetime | None:
    """Return the time at which a token expires, or None if the token does not contain it."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return datetime.fromtimestamp(float(claims["exp"]), UTC)
    except (IndexError, KeyError, TypeError, ValueError, OverflowError):
        return None
