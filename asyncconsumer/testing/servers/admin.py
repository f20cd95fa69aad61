"""The administration of a test cluster: topics, partitions, leaders, users and permissions.

Each call opens its own connection to a broker and closes it. So an `Admin` is not bound to an event
loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from asyncconsumer.aiokafka_parts import (
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    KafkaError,
    MetadataRequest,
    OffsetRequest,
    Request,
    create_conn,
    for_code,
)
from asyncconsumer.testing.servers.errors import AdminFailed
from asyncconsumer.testing.servers.messages import (
    AlterPartitionReassignmentsRequest,
    AlterUserScramCredentialsRequest,
    ElectLeadersRequest,
)
from asyncconsumer.testing.servers.ports import HOST

_TIMEOUT_MS: Final = 30_000
_POLL_SECONDS: Final = 0.05

_ANY: Final = 1
_RESOURCES: Final = {"topic": 2, "group": 3, "cluster": 4, "transactional_id": 5}
_OPERATIONS: Final = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "describe_configs": 10,
}
_DENY, _ALLOW = 2, 3
_LITERAL: Final = 3
_LATEST: Final = -1  # as a timestamp


class Admin:
    """An admin client of a test cluster. It uses the brokers' unsecured listeners."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        self._ports = ports  # by broker id

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until every live broker knows the leaders of its partitions."""
        topic: tuple[Any, ...] = (
            name,
            partitions,
            replication_factor,
            [],
            list((config or {}).items()),
        )
        answer = await self._to_controller(
            CreateTopicsRequest([topic], _TIMEOUT_MS, validate_only=False)
        )
        for _, code, message in answer.topic_errors:
            _check(code, f"topic {name} could not be created: {message}")
        await self.wait_for_topic(name, partitions)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until no live broker knows it."""
        answer = await self._to_controller(DeleteTopicsRequest([name], _TIMEOUT_MS))
        for _, code in answer.topic_error_codes:
            _check(code, f"topic {name} could not be deleted")
        await self._until_everywhere(lambda topics: name not in topics, f"topic {name} to be gone")

        async def name_is_free() -> bool:  # in ZooKeeper mode the deletion is delayed
            rehearsal = CreateTopicsRequest([(name, 1, 1, [], [])], _TIMEOUT_MS, validate_only=True)
            answer = await self._to_controller(rehearsal)
            return all(code == 0 for _, code, _ in answer.topic_errors)

        await _until(name_is_free, f"the name {name} to be free again")

    async def add_partitions(self, name: str, total: int) -> None:
        """Raise the number of partitions to `total` and wait until every live broker knows them."""
        request = CreatePartitionsRequest([(name, (total, None))], _TIMEOUT_MS, validate_only=False)
        for _, code, message in (await self._to_controller(request)).topic_errors:
            _check(code, f"{name} could not get {total} partitions: {message}")
        await self.wait_for_topic(name, total)

    async def wait_for_topic(self, name: str, partitions: int) -> None:
        """Wait until every live broker knows the partitions, and their leaders serve them."""

        def known(topics: Mapping[str, Mapping[int, int]]) -> bool:
            leaders = topics.get(name, {}).values()
            return len(leaders) == partitions and all(leader >= 0 for leader in leaders)

        await self._until_everywhere(known, f"topic {name} with {partitions} partitions")

        async def served() -> bool:  # all brokers may know a leader before the leader itself does
            return await self._serve(name)

        await _until(served, f"every partition of {name} to be served by its leader")

    async def leader(self, topic: str, partition: int) -> int:
        """Return the broker id of a partition's leader, or -1 without a leader."""
        for node in self._ports:
            try:
                return (await self._topics(node))[topic][partition]
            except (KafkaError, OSError, TimeoutError, KeyError):
                continue
        raise AdminFailed(f"no broker knows {topic}[{partition}]")

    async def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make the broker with the id `to` the leader of a partition.

        If it is not a replica, it replaces the last replica first.
        """
        replicas, _ = await self._replicas(topic, partition)
        replica_order = [to, *(node for node in replicas if node != to)][: len(replicas)]
        request = AlterPartitionReassignmentsRequest(topic, partition, replica_order)
        answer = await self._to_controller(request)
        _check(answer.error_code, f"{topic}[{partition}] could not move: {answer.error_message}")

        async def in_place() -> bool:
            now, in_sync = await self._replicas(topic, partition)
            return now == replica_order and to in in_sync

        await _until(in_place, f"broker {to} to hold {topic}[{partition}]")

        async def elected() -> bool:
            await self._to_controller(ElectLeadersRequest(topic, partition))
            return await self.leader(topic, partition) == to

        await _until(elected, f"broker {to} to lead {topic}[{partition}]")

    async def set_scram_password(self, user: str, password: str) -> None:
        """Set the password of `user` for SCRAM listeners."""
        answer = await self._to_controller(AlterUserScramCredentialsRequest(user, password))
        for _, code, message, _ in answer.results:
            _check(code, f"password of {user} could not be set: {message}")

    async def allow(self, user: str, resource: str, name: str, *operations: str) -> None:
        """Grant permissions to a user, for example `allow("alice", "topic", "orders", "read")`."""
        for operation in operations:
            request = CreateAclsRequest(
                _RESOURCES[resource],
                name,
                _LITERAL,
                f"User:{user}",
                "*",
                _OPERATIONS[operation],
                _ALLOW,
            )
            for code, message in (await self._to_controller(request)).creation_responses:
                _check(code, f"access to {resource} {name} could not be granted: {message}")

    async def revoke(self, user: str, resource: str, name: str) -> None:
        """Revoke all permissions of a user on one resource, such as a topic."""
        request = DeleteAclsRequest(
            _RESOURCES[resource], name, _LITERAL, f"User:{user}", "*", _ANY, _ANY
        )
        for code, message, _ in (await self._to_controller(request)).filter_responses:
            _check(code, f"access to {resource} {name} could not be revoked: {message}")

    async def brokers(self, ask: int) -> set[int]:
        """Return the ids of the live brokers, as the broker `ask` knows them."""
        return {broker[0] for broker in (await self._metadata(ask)).brokers}

    async def _to_controller(self, request: Request[Any]) -> Any:  # noqa: ANN401 - responses of aiokafka are untyped
        """Send a request to the cluster's controller, and return the response.

        Ask the brokers for the controller's id until the controller has responded.
        """
        answer: Any = None

        async def answered() -> bool:
            nonlocal answer
            for node in self._ports:
                try:
                    controller = (await self._metadata(node)).controller_id
                    answer = await self._send(
                        controller if controller in self._ports else node, request
                    )
                except (KafkaError, OSError, TimeoutError):
                    continue
                return True
            return False

        await _until(answered, "a controller")
        return answer

    async def _send(self, node: int, request: Request[Any]) -> Any:  # noqa: ANN401
        async with _connection(self._ports[node]) as send:
            return await send(request)

    async def _metadata(self, node: int) -> Any:  # noqa: ANN401
        return await self._send(node, MetadataRequest(None, allow_auto_topic_creation=False))

    async def _topics(self, node: int) -> dict[str, dict[int, int]]:
        """Return the leader's id of each partition of each topic, as the broker `node` knows it."""
        return {
            name: {number: leader for _, number, leader, *_ in partitions}
            for code, name, _, partitions in (await self._metadata(node)).topics
            if code == 0
        }

    async def _replicas(self, topic: str, partition: int) -> tuple[list[int], list[int]]:
        """Return the broker ids of a partition's replicas, and those of its in-sync replicas.

        The first replica is the preferred leader.
        """
        for node in self._ports:
            try:
                topics = (await self._metadata(node)).topics
            except (KafkaError, OSError, TimeoutError):
                continue
            for _, name, _, partitions in topics:
                for row in partitions:
                    if (name, row[1]) == (topic, partition):
                        return list(row[3]), list(row[4])
        raise AdminFailed(f"there is no {topic}[{partition}]")

    async def _serve(self, topic: str) -> bool:
        """Return whether the leaders of all partitions of a topic serve requests for them."""
        for node in self._ports:
            try:
                leaders = (await self._topics(node))[topic]
                for leader in set(leaders.values()):
                    led = [(number, _LATEST) for number in leaders if leaders[number] == leader]
                    answer = await self._send(leader, OffsetRequest(-1, 0, [(topic, led)]))
                    ((_, partitions),) = answer.topics
                    if any(code for _, code, *_ in partitions):
                        return False
            except (KafkaError, OSError, TimeoutError, KeyError):
                continue
            return True
        return False

    async def _until_everywhere(
        self, is_met: Callable[[Mapping[str, Mapping[int, int]]], bool], condition: str
    ) -> None:
        async def everywhere() -> bool:
            answers = []
            for node in self._ports:
                try:
                    answers.append(is_met(await self._topics(node)))
                except (KafkaError, OSError, TimeoutError):
                    continue  # a broker that is down has no metadata
            return bool(answers) and all(answers)

        await _until(everywhere, condition)


def _check(code: int, message: str) -> None:
    if code:
        error = for_code(code)
        raise AdminFailed(f"{message} ({error.__name__}: {error.description})")


async def _until(is_met: Callable[[], Any], condition: str) -> None:
    try:
        async with asyncio.timeout(_TIMEOUT_MS / 1000):
            while not await is_met():
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        seconds = _TIMEOUT_MS // 1000
        raise AdminFailed(f"waited {seconds} s for {condition}, without success") from None


@asynccontextmanager
async def _connection(port: int) -> AsyncIterator[Callable[[Request[Any]], Any]]:
    connection = await create_conn(
        HOST, port, client_id="asyncconsumer-testing", request_timeout_ms=5_000
    )
    try:
        yield connection.send
    finally:
        await connection.close()
