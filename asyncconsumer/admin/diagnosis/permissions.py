"""The check of the permissions that a consumer needs: READ on its topics and on its group."""

from collections.abc import Sequence
from typing import Final

from asyncconsumer.admin.client import AdminClient
from asyncconsumer.admin.diagnosis.finding import Finding, from_error
from asyncconsumer.errors import BrokerError, ConsumerError, GroupAccessDenied, TopicAccessDenied
from asyncconsumer.protocol.classic_group import HeartbeatRequest
from asyncconsumer.protocol.messages import MetadataRequest

_READ: Final = 1 << 3
_UNKNOWN: Final = -(2**31)  # brokers before Kafka 2.3 do not report operations
_NO_MEMBER: Final = "asyncconsumer-doctor"  # a member id that no group has


async def check_topics(client: AdminClient, topics: Sequence[str], user: str) -> list[Finding]:
    """Return a finding for each topic: whether it exists, and whether the user may read it."""
    if not topics:
        return []
    row = await client.ask_any(MetadataRequest(sorted(set(topics)), operations=True))
    return [
        _topic_finding(
            topic["name"],
            topic["error_code"],
            topic.get("authorized_operations", _UNKNOWN),
            len(topic["partitions"]),
            user,
        )
        for topic in sorted(row["topics"], key=lambda topic: str(topic["name"]))
    ]


def _topic_finding(name: str, code: int, operations: int, partitions: int, user: str) -> Finding:
    subject = f"topic {name}"
    if code == TopicAccessDenied.code:
        message = f"{user} may not describe the topic, or it does not exist"
        return Finding("error", "acl", subject, message, _grant("topic", name))
    if code:
        return from_error("topic", subject, BrokerError.from_code(code, "not available"), _CREATE)
    if operations not in (_UNKNOWN, operations | _READ):
        message = f"{user} may not read the topic"
        return Finding("error", "acl", subject, message, _grant("topic", name))
    return Finding("ok", "acl", subject, f"{user} may read its {partitions} partitions")


async def check_group_access(client: AdminClient, group: str, user: str) -> Finding:
    """Return a finding that tells whether the user may join the group and commit offsets.

    A Heartbeat request with an unknown member id is sent. If the user may read the group, the
    broker rejects only the member id.
    """
    subject = f"group {group}"
    try:
        response = await client.retry(
            lambda: client.ask_coordinator(
                client.coordinator(group), HeartbeatRequest(group, 0, _NO_MEMBER)
            )
        )
    except GroupAccessDenied:
        message = f"{user} may not describe the group"
        return Finding("error", "acl", subject, message, _grant("group", group))
    except ConsumerError as error:
        return from_error("group", subject, error)
    if response["error_code"] == GroupAccessDenied.code:
        message = f"{user} may not read the group, so it cannot join or commit"
        return Finding("error", "acl", subject, message, _grant("group", group))
    return Finding("ok", "acl", subject, f"{user} may join and commit")


_CREATE: Final = "Check the name, or create the topic: asyncconsumer topics create"


def _grant(kind: str, name: str) -> str:
    return (
        f"Grant it: kafka-acls.sh --add --allow-principal User:... --operation Read --{kind} {name}"
    )
