"""Tokens for Amazon MSK, signed with the credentials of botocore."""

import base64
import os
from importlib import import_module
from typing import Any, Final

from asyncconsumer.auth.cache import CachingTokenProvider, IssuedToken
from asyncconsumer.errors import ConfigError, TokenRequestFailed

_LIFETIME: Final = 900  # MSK accepts no longer one


class MskIam(CachingTokenProvider):
    """A token provider for the IAM listener of Amazon MSK. It needs the extra ``msk``.

    A token is a presigned URL. Credentials come from `credentials`, an object of botocore, or
    from botocore's usual places: environment, profile, container and instance.
    """

    def __init__(
        self,
        region: str | None = None,
        *,
        profile: str | None = None,
        credentials: Any | None = None,  # noqa: ANN401 - botocore has no types
    ) -> None:
        super().__init__()
        try:
            session = import_module("botocore.session").Session(profile=profile)
        except ImportError:
            raise ConfigError(
                "MskIam needs botocore: run `pip install 'asyncconsumer[msk]'`"
            ) from None
        self._session = session
        self._credentials = credentials
        self.region = (
            region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
        )
        if not self.region:
            raise ConfigError("MskIam needs a region. Pass `region` or set AWS_REGION")

    def request_token(self) -> IssuedToken:
        """Sign a new token. If botocore needs new credentials, it requests them from AWS."""
        auth, request = import_module("botocore.auth"), import_module("botocore.awsrequest")
        credentials = self._credentials or self._session.get_credentials()
        host = f"https://kafka.{self.region}.amazonaws.com/"
        if credentials is None:
            raise TokenRequestFailed(
                host, "botocore has no credentials. Set AWS_PROFILE or AWS_ACCESS_KEY_ID"
            )
        try:
            frozen = credentials.get_frozen_credentials()
        except Exception as error:
            reason = f"botocore cannot load credentials: {error}"
            raise TokenRequestFailed(host, reason) from error
        signed = request.AWSRequest("GET", f"{host}?Action=kafka-cluster%3AConnect")
        auth.SigV4QueryAuth(frozen, "kafka-cluster", self.region, _LIFETIME).add_auth(signed)
        url = f"{signed.url}&User-Agent=asyncconsumer"
        return IssuedToken(base64.urlsafe_b64encode(url.encode()).rstrip(b"=").decode(), _LIFETIME)
