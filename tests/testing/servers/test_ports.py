"""Ports that stay reserved while a server on them is down."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from asyncconsumer.testing.servers import PortInUse, ServerError
from asyncconsumer.testing.servers.ports import HOST, Ports

pytestmark = pytest.mark.fast


@pytest.fixture
def ports() -> Iterator[Ports]:
    taken = Ports()
    yield taken
    taken.close()


def test_a_port_is_reserved_until_it_is_closed(ports: Ports) -> None:
    port = ports.take()
    other = Ports()
    with pytest.raises(PortInUse, match=f"port {port} .* is in use: stop what listens there"):
        other.take(port)
    ports.close()
    assert other.take(port) == port
    other.close()


def test_a_port_with_a_listener_is_refused(ports: Ports) -> None:
    with socket.create_server((HOST, 0)) as listening, pytest.raises(PortInUse):
        ports.take(listening.getsockname()[1])


@pytest.mark.parametrize("port", [70_000, -1, 0])
def test_an_invalid_port_number_is_refused(ports: Ports, port: int) -> None:
    with pytest.raises(ServerError, match=f"port {port} does not exist"):
        ports.take(port)


def test_reserved_ports_are_below_the_ephemeral_ports(ports: Ports) -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(ports.take() < lowest for _ in range(20))
