"""The FastAPI example on a SASL_SSL broker, configured only by environment variables."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import SASL_OAUTH, SASL_SCRAM, Kafka, Listener
from asyncconsumer.testing.servers.listeners import PASSWORDS
from tests.support.example_services import ROOT, Service, open_service
from tests.support.token_server import CLIENT, SECRET, TokenServer

FASTAPI = [sys.executable, *("-m", "uvicorn", "examples.fastapi_service:api")]
SHOW = [sys.executable, "-c", "from asyncconsumer.cli import main; main()", "config", "show"]


def scram(_: TokenServer) -> dict[str, str]:
    return {
        "SASL_MECHANISM": "SCRAM-SHA-512",
        "SASL_PLAIN_USERNAME": "alice",
        "SASL_PLAIN_PASSWORD": PASSWORDS["alice"],
    }


def oidc(server: TokenServer) -> dict[str, str]:
    return {
        "SASL_MECHANISM": "OAUTHBEARER",
        "SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": server.token_url,
        "SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID": CLIENT,
        "SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET": SECRET,
        "SASL_OAUTHBEARER_SCOPE": "read",
    }


def secure(service: Service, kafka: Kafka, listener: Listener, login: dict[str, str]) -> None:
    assert kafka.certificates is not None
    variables = {
        **login,
        "BOOTSTRAP_SERVERS": kafka.addresses(listener),
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SSL_CAFILE": str(kafka.certificates.authority_file),
    }
    for name, value in variables.items():
        service.environment[f"ASYNCCONSUMER_{name}"] = value


@pytest.mark.parametrize(
    ("listener", "login", "secret"),
    [
        pytest.param(SASL_SCRAM, scram, PASSWORDS["alice"], id="scram"),
        pytest.param(SASL_OAUTH, oidc, SECRET, id="oidc"),
    ],
)
async def test_the_service_logs_in_and_reads_without_showing_its_secret(
    verifying: Kafka,
    server: TokenServer,
    tmp_path: Path,
    listener: Listener,
    login: object,
    secret: str,
) -> None:
    assert callable(login)
    async with open_service(KafkaHandle(verifying, "example"), tmp_path) as service:
        secure(service, verifying, listener, login(server))
        requests = len(server.requests)
        await service.send(20)
        service.start(*FASTAPI, "--port", str(service.port))
        await service.wait_status("/kafka/ready", 200)
        await service.wait_stored()
        assert await service.get("/orders/count") == (200, 20)
        assert (len(server.requests) > requests) is (login is oidc)
        shown = subprocess.run(
            SHOW, cwd=ROOT, env=service.variables, capture_output=True, text=True, check=True
        )
        assert "(redacted)" in shown.stdout
        assert secret not in shown.stdout + shown.stderr
        assert await service.end() in (0, -signal.SIGTERM), service.observed  # by uvicorn
        assert secret not in service.observed
