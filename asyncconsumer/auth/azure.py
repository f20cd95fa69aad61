"""Tokens of Microsoft Entra for Azure Event Hubs."""

from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from asyncconsumer.auth.cache import CachingTokenProvider, IssuedToken
from asyncconsumer.errors import ConfigError, TokenRequestFailed


class AzureEntra(CachingTokenProvider):
    """A token provider for Azure Event Hubs. It needs the extra ``azure``.

    ``scope`` is ``"https://NAMESPACE.servicebus.windows.net/.default"``. ``credential`` is an
    object of azure-identity. The default is its ``DefaultAzureCredential``.
    """

    def __init__(self, scope: str, credential: Any | None = None) -> None:  # noqa: ANN401 - azure's
        super().__init__()
        if not scope:
            raise ConfigError(
                "AzureEntra needs a scope such as "
                "'https://NAMESPACE.servicebus.windows.net/.default'"
            )
        if credential is None:
            try:
                credential = import_module("azure.identity").DefaultAzureCredential()
            except ImportError:
                raise ConfigError(
                    "AzureEntra needs azure-identity: run `pip install 'asyncconsumer[azure]'`"
                ) from None
        self.scope = scope
        self._credential = credential

    def request_token(self) -> IssuedToken:
        """Request a token from Microsoft Entra with the credential."""
        try:
            issued = self._credential.get_token(self.scope)
        except Exception as error:
            raise TokenRequestFailed(self.scope, f"the credential failed: {error}") from error
        return IssuedToken(issued.token, issued.expires_on - datetime.now(UTC).timestamp())
