"""Tokens for Amazon MSK, compared with a signature that is computed here."""

import base64
import hashlib
import hmac
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from asyncconsumer import ConfigError, MskIam
from asyncconsumer.errors import TokenRequestFailed

pytest.importorskip("botocore")
pytestmark = pytest.mark.fast

KEY_ID, SECRET, SESSION = "AKIDEXAMPLE", "hunter2+hunter2", "a/session+token=="


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def digest(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(fields: dict[str, str], host: str, region: str) -> str:
    """Compute version 4 of AWS's signature for a presigned GET request."""
    query = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted(fields.items()))
    empty = hashlib.sha256(b"").hexdigest()
    request = f"GET\n/\n{query}\nhost:{host}\n\nhost\n{empty}"
    time = fields["X-Amz-Date"]
    scope = f"{time[:8]}/{region}/kafka-cluster/aws4_request"
    hashed = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = digest(key, part)
    return digest(key, f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashed}").hex()


async def test_tokens_are_presigned_with_signature_version_4() -> None:
    tokens = MskIam("eu-west-1")
    token = await tokens.token()
    assert "=" not in token
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    fields = dict(parse_qsl(url.query, strict_parsing=True))
    assert fields.pop("User-Agent") == "asyncconsumer"
    signed = fields.pop("X-Amz-Signature")
    assert (url.scheme, url.netloc, url.path) == ("https", "kafka.eu-west-1.amazonaws.com", "/")
    assert fields["Action"] == "kafka-cluster:Connect"
    assert fields["X-Amz-Expires"] == "900"
    assert fields["X-Amz-Security-Token"] == SESSION
    assert fields["X-Amz-Credential"].startswith(f"{KEY_ID}/")
    assert signed == signature(fields, url.netloc, "eu-west-1")
    assert SECRET not in repr(tokens) + str(url)


async def test_a_token_is_kept_and_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("asyncconsumer.auth.cache.time.monotonic", lambda: now)
    tokens = MskIam("eu-west-1")
    first = await tokens.token()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")  # botocore keeps the old one
    now += 0.79 * 900
    assert await tokens.token() is first
    now += 0.02 * 900
    assert await tokens.token() is not first


def test_the_region_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="Pass `region` or set AWS_REGION"):
        MskIam()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    assert MskIam().region == "eu-west-2"
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert MskIam().region == "eu-west-1"


async def test_missing_credentials_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    with pytest.raises(TokenRequestFailed, match="botocore has no credentials"):
        await MskIam("eu-west-1").token()
