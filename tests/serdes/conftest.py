"""Fixtures for the tests of deserializers."""

from pathlib import Path

import pytest
import trustme


@pytest.fixture(scope="session")
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("authority") / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(autouse=True)
def few_authorities(one_authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the certificate authorities, which each registry client loads, also without TLS."""
    monkeypatch.setenv("SSL_CERT_FILE", str(one_authority))
