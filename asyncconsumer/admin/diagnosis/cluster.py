"""The checks of a cluster: supported requests, clock and replication."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from asyncconsumer.admin.client import check
from asyncconsumer.admin.diagnosis.addresses import AddressReport
from asyncconsumer.admin.diagnosis.cluster_view import ClusterView
from asyncconsumer.admin.diagnosis.finding import Finding, from_error
from asyncconsumer.errors import ConsumerError, UnsupportedBroker, UnsupportedVersion
from asyncconsumer.protocol.admin_cluster import DescribeQuorumRequest
from asyncconsumer.protocol.admin_groups import ConsumerGroupDescribeRequest
from asyncconsumer.protocol.classic_group import HEARTBEAT
from asyncconsumer.protocol.messages import FETCH, LIST_OFFSETS, METADATA
from asyncconsumer.types import TopicPartition

_NEEDED: Final = (METADATA, FETCH, LIST_OFFSETS, HEARTBEAT)
_NO_GROUP: Final = "asyncconsumer-doctor"  # a group that does not exist
_MAX_SKEW: Final = 5.0  # seconds
_NAMED: Final = 5  # partitions in one message


def _wall_clock() -> float:
    return datetime.now(UTC).timestamp()


def check_versions(reports: Sequence[AddressReport]) -> list[Finding]:
    """Return findings about the request versions that brokers support and in which they differ."""
    findings = []
    for report in reports:
        for api in _NEEDED:
            low, high = report.versions.get(api.key, (-1, -1))
            if high < api.versions[0] or low > api.versions[-1]:
                message = f"does not support {api.name} in version {api.versions[0]} or newer"
                advice = "Use brokers with Kafka 1.0 or newer"
                findings.append(Finding("error", "version", str(report.address), message, advice))
    if any(report.versions != reports[0].versions for report in reports):
        names = ", ".join(str(report.address) for report in reports)
        message = "the brokers support different versions of requests"
        advice = "Finish the upgrade of all brokers, if no upgrade is in progress"
        findings.append(Finding("warning", "version", names, message, advice))
    if not findings:
        message = f"all reachable brokers support the same {len(reports[0].versions)} requests"
        findings.append(Finding("ok", "version", "cluster", message))
    return findings


async def check_features(view: ClusterView) -> Finding:
    """Return a finding that tells which group protocols the brokers have enabled.

    A broker may list the requests of KIP-848 in ApiVersions and still reject them. Therefore a
    ConsumerGroupDescribe request is sent, for a group that does not exist.
    """
    try:
        response = await view.client.ask_any(ConsumerGroupDescribeRequest(_NO_GROUP))
        enabled = response["groups"][0]["error_code"] != UnsupportedVersion.code
    except (UnsupportedBroker, UnsupportedVersion):
        enabled = False
    except ConsumerError as error:
        return from_error("feature", "cluster", error)
    if enabled:
        return Finding("ok", "feature", "cluster", "classic groups and KIP-848 groups are enabled")
    message = "only classic groups are enabled; KIP-848 groups need Kafka 4.0"
    return Finding("ok", "feature", "cluster", message)


async def check_clock(view: ClusterView, now: Callable[[], float] = _wall_clock) -> Finding:
    """Return a finding that compares this machine's clock with that of the controller.

    The controller's time is taken from its DescribeQuorum response.
    """
    before = now()
    try:
        response = await view.client.ask_any(DescribeQuorumRequest())
        check(response["error_code"], "the controllers")
        partition = response["topics"][0]["partitions"][0]
        check(partition["error_code"], "the controllers")
    except ConsumerError as error:
        message = f"not checked, because no broker reports its time: {error}".rstrip(".")
        return Finding("ok", "clock", "controller", message)
    after, leader = now(), partition["leader_id"]
    times = [
        row["last_fetch_timestamp"] / 1000
        for row in partition["current_voters"]
        if row["replica_id"] == leader
    ]
    subject = f"controller {leader}"
    if not times or times[0] <= 0:
        return Finding("ok", "clock", subject, "not checked, because it does not report its time")
    # the time of the controller lies between request and response
    skew = max(before - times[0], times[0] - after, 0.0)
    if skew > _MAX_SKEW:
        direction = "behind" if times[0] > after else "ahead of"
        message = f"the clock of this machine is {skew:.0f} s {direction} the controller's"
        advice = (
            "Synchronize both clocks by NTP. Until then, ages of records, positions by time and "
            "the expiry of tokens are wrong"
        )
        return Finding("warning", "clock", subject, message, advice)
    return Finding("ok", "clock", subject, f"the clocks differ by at most {skew + 1:.0f} s")


async def check_replication(view: ClusterView, topics: Sequence[str]) -> list[Finding]:
    """Return findings about partitions without a leader or with replicas out of sync.

    Without `topics`, all topics are checked.
    """
    described = await view.describe_topics(topics or None)
    leaderless, lagging, missing = [], [], set[int]()
    count = 0
    for topic in described:
        for row in topic.partitions:
            count += 1
            tp = TopicPartition(topic.name, row.partition)
            if row.leader is None:
                leaderless.append(str(tp))
            elif row.is_under_replicated:
                lagging.append(str(tp))
                missing |= set(row.replicas) - set(row.in_sync)
    findings = []
    if leaderless:
        message = f"{len(leaderless)} partitions have no leader: {_some(leaderless)}"
        advice = "Start the brokers that have their replicas"
        findings.append(Finding("error", "replication", "cluster", message, advice))
    if lagging:
        nodes = ", ".join(map(str, sorted(missing)))
        message = (
            f"{len(lagging)} partitions are under-replicated: {_some(lagging)}; replicas are "
            f"missing on the brokers {nodes}"
        )
        advice = "Check whether these brokers run, their disks and their network"
        findings.append(Finding("warning", "replication", "cluster", message, advice))
    if not findings:
        message = f"all replicas of {count} partitions are in sync"
        findings.append(Finding("ok", "replication", "cluster", message))
    return findings


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
