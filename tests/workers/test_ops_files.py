"""The files in ops/ for containers: they use commands, options, pages and variables that exist."""

import importlib.util
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import typer
import yaml  # type: ignore[import-untyped]

from asyncconsumer.cli.app import app
from asyncconsumer.config.external import OTHER_VARIABLES, PREFIX, ExternalOptions
from asyncconsumer.config.option_docs import option_docs
from asyncconsumer.config.options import ConsumerOptions
from asyncconsumer.handlers.app_settings import AppSettings
from asyncconsumer.web.pages import PATHS
from asyncconsumer.workers.loading import check_name
from asyncconsumer.workers.supervisor import _SECONDS_TO_LEAVE
from tests.support.example_services import ROOT

pytestmark = pytest.mark.fast

OPS = ROOT / "ops"
FILES = ("Dockerfile", "compose.yaml", "kubernetes.yaml", "keda.yaml")
DOCKERFILE = (OPS / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE = yaml.safe_load((OPS / "compose.yaml").read_text())["services"]


def documents(name: str) -> dict[str, Any]:
    """Return the Kubernetes objects of a file, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((OPS / name).read_text())}


KUBERNETES, KEDA = documents("kubernetes.yaml"), documents("keda.yaml")
POD = KUBERNETES["Deployment"]["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]
LEAST_GRACE = AppSettings(options={}).shutdown_grace_ms / 1000 + _SECONDS_TO_LEAVE


def instructions(name: str) -> list[str]:
    """Return the arguments of an instruction of the Dockerfile, wherever it occurs."""
    return re.findall(rf"^{name} (.*)$", DOCKERFILE, re.MULTILINE)


def commands() -> Iterator[list[str]]:
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["asyncconsumer"]
    yield json.loads(instructions("CMD")[0])
    yield COMPOSE["worker"]["command"]
    yield CONTAINER["args"]


def variables() -> dict[str, str]:
    """Return the variables of the container, and its secret."""
    values = {each["name"]: each.get("value", "pod-1") for each in CONTAINER["env"]}
    secret = KUBERNETES["Secret"]
    assert CONTAINER["envFrom"] == [{"secretRef": {"name": secret["metadata"]["name"]}}]
    return {**values, **secret["stringData"]}


@pytest.mark.parametrize("arguments", list(commands()))
def test_commands_and_their_options_exist(arguments: list[str]) -> None:
    name, *rest = arguments
    command = typer.main.get_command(app).get_command(None, name)  # type: ignore[attr-defined]
    parsed = command.make_context(name, rest).params
    assert (parsed["host"], parsed["port"]) == ("0.0.0.0", 8080)
    module, _ = check_name(parsed["target"])
    assert importlib.util.find_spec(module)


def test_ports_are_those_of_the_commands() -> None:
    (port,) = CONTAINER["ports"]
    assert port["containerPort"] == 8080
    assert instructions("EXPOSE") == ["8080"]
    assert COMPOSE["worker"]["ports"] == ["127.0.0.1:8080:8080"]
    assert POD["metadata"]["annotations"]["prometheus.io/port"] == "8080"


def test_probes_and_scrapes_are_for_pages_that_exist() -> None:
    probes = {name: CONTAINER[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}
    paths = {name: probe["httpGet"]["path"] for name, probe in probes.items()}
    assert paths == {"startup": "/started", "liveness": "/live", "readiness": "/ready"}
    (scrape,) = KUBERNETES["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert scrape["path"] == POD["metadata"]["annotations"]["prometheus.io/path"] == "/metrics"
    assert {*paths.values(), scrape["path"]} <= set(PATHS)
    ports = {probe["httpGet"]["port"] for probe in probes.values()} | {scrape["port"]}
    assert ports == {CONTAINER["ports"][0]["name"]}


@pytest.mark.parametrize("environment", [variables(), COMPOSE["worker"]["environment"]])
def test_variables_set_options(environment: Mapping[str, str]) -> None:
    options = ExternalOptions.read({}, environment=environment).options
    assert {PREFIX + name.upper() for name in options} == set(environment)


@pytest.mark.parametrize("name", FILES)
def test_mentioned_variables_exist(name: str) -> None:
    known = {PREFIX + option.upper() for option in option_docs(ConsumerOptions)} | OTHER_VARIABLES
    assert set(re.findall(rf"{PREFIX}[A-Z_]+", (OPS / name).read_text())) <= known


def test_a_container_is_not_killed_while_it_drains() -> None:
    assert POD["spec"]["terminationGracePeriodSeconds"] > LEAST_GRACE
    assert float(COMPOSE["worker"]["stop_grace_period"].removesuffix("s")) > LEAST_GRACE


def test_labels_select_the_pods() -> None:
    labels = POD["metadata"]["labels"]
    assert KUBERNETES["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert KUBERNETES["PodMonitor"]["spec"]["selector"]["matchLabels"] == labels


def test_keda_scales_the_deployment_by_the_lag_of_its_group() -> None:
    scaled = KEDA["ScaledObject"]["spec"]
    assert scaled["scaleTargetRef"]["name"] == KUBERNETES["Deployment"]["metadata"]["name"]
    (trigger,) = scaled["triggers"]
    assert trigger["metadata"]["consumerGroup"] == variables()["ASYNCCONSUMER_GROUP_ID"]
    servers = variables()["ASYNCCONSUMER_BOOTSTRAP_SERVERS"]
    assert trigger["metadata"]["bootstrapServers"] == servers
    partitions = COMPOSE["kafka"]["environment"]["KAFKA_NUM_PARTITIONS"]
    assert scaled["maxReplicaCount"] == int(partitions)
    login = KEDA["TriggerAuthentication"]
    assert trigger["authenticationRef"]["name"] == login["metadata"]["name"]
    for target in login["spec"]["secretTargetRef"]:
        assert target["name"] == KUBERNETES["Secret"]["metadata"]["name"]
        assert target["key"] in KUBERNETES["Secret"]["stringData"]


def test_the_image_has_two_stages_and_no_root_user() -> None:
    assert len(instructions("FROM")) == 2
    assert instructions("USER") == [str(POD["spec"]["securityContext"]["runAsUser"])]
    assert int(instructions("USER")[0]) > 0
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (install,) = (line for line in instructions("RUN") if "pip install" in line)
    extras = re.fullmatch(r"\.\[(.*)\]", shlex.split(install)[-1])
    assert extras is not None
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])


def test_the_build_context_has_the_copied_files() -> None:
    lines = (OPS / "Dockerfile.dockerignore").read_text().splitlines()
    copied = [line[1:] for line in lines if line.startswith("!")]
    assert all((ROOT / name).exists() for name in copied)
    assert {"examples", "constraints.txt", "pyproject.toml", "setup.py"} <= set(copied)
    assert COMPOSE["worker"]["build"] == {"context": "..", "dockerfile": "ops/Dockerfile"}
