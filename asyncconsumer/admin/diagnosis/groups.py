"""The checks of a group: its state, its offsets, and partitions without progress."""

import asyncio
from collections.abc import Mapping
from typing import Final

from asyncconsumer.admin.diagnosis.cluster_view import ClusterView
from asyncconsumer.admin.diagnosis.finding import Finding
from asyncconsumer.admin.lag import find_offsets
from asyncconsumer.admin.results import ConsumerGroupDescription, PartitionLag
from asyncconsumer.errors import GroupIdNotFound
from asyncconsumer.protocol.messages import EARLIEST
from asyncconsumer.types import TopicPartition

_RESET: Final = "Choose a new offset with `asyncconsumer groups reset`, while no member runs"


async def check_group(view: ClusterView, group: str, observe_seconds: float) -> list[Finding]:
    """Return findings about the state and the offsets of a group.

    If partitions have a lag, their offsets are read again after `observe_seconds`.
    """
    try:
        description = await view.describe_group(group)
    except GroupIdNotFound:
        message = "the group does not exist yet, or its offsets have expired"
        advice = "Check the name. If it is right, start a consumer"
        return [Finding("warning", "group", f"group {group}", message, advice)]
    rows = {TopicPartition(row.topic, row.partition): row for row in await _lag(view, group)}
    findings = [_state_finding(description)]
    findings += _idle_findings(description)
    findings += await _offset_findings(view, rows)
    findings += await _progress_findings(view, description, rows, observe_seconds)
    return findings


async def _lag(view: ClusterView, group: str) -> tuple[PartitionLag, ...]:
    return (await view.lag(group)).partitions


def _state_finding(description: ConsumerGroupDescription) -> Finding:
    subject, state = f"group {description.group}", description.state
    if state == "Stable":
        message = f"stable with {len(description.members)} members ({description.kind} protocol)"
        return Finding("ok", "group", subject, message)
    if not description.members:
        advice = "Start a consumer of this group, if it should run now"
        return Finding("warning", "group", subject, f"{state.lower()}: no live member", advice)
    message = f"a rebalance is in progress (state {state})"
    advice = "Repeat the check. If it stays, look for a member that joins again and again"
    return Finding("warning", "group", subject, message, advice)


def _idle_findings(description: ConsumerGroupDescription) -> list[Finding]:
    idle = [member for member in description.members if not member.partitions]
    if description.state != "Stable" or not idle:
        return []
    message = f"{len(idle)} of {len(description.members)} members have no partition"
    advice = "Add partitions, or run fewer members"
    return [Finding("warning", "group", f"group {description.group}", message, advice)]


async def _offset_findings(
    view: ClusterView, rows: Mapping[TopicPartition, PartitionLag]
) -> list[Finding]:
    """Return findings about committed offsets that are not in the partitions' logs."""
    existing = [tp for tp, row in rows.items() if row.end is not None]
    starts = await find_offsets(view.client, existing, EARLIEST)
    findings = []
    for tp, row in rows.items():
        if row.committed is None:
            continue
        if row.end is None:
            message = f"the committed offset {row.committed} is of a partition without a leader"
            advice = "If the topic was deleted, use `asyncconsumer groups delete-offsets`"
            findings.append(Finding("warning", "offset", str(tp), message, advice))
        elif row.committed > row.end:
            message = f"the committed offset {row.committed} is after the end of the log {row.end}"
            advice = f"The topic may be re-created or truncated. {_RESET}"
            findings.append(Finding("error", "offset", str(tp), message, advice))
        elif row.committed < starts.get(tp, 0):
            message = (
                f"the committed offset {row.committed} is before the start of the log "
                f"{starts[tp]}, so records were deleted before they were read"
            )
            advice = f"Raise `retention.ms`, or consume faster. {_RESET}"
            findings.append(Finding("error", "offset", str(tp), message, advice))
    return findings


async def _progress_findings(
    view: ClusterView,
    description: ConsumerGroupDescription,
    rows: Mapping[TopicPartition, PartitionLag],
    observe_seconds: float,
) -> list[Finding]:
    """Return findings about partitions with a lag whose committed offsets do not advance."""
    subject = f"group {description.group}"
    behind = {tp: row for tp, row in rows.items() if row.lag}
    if not behind:
        return [Finding("ok", "progress", subject, f"no lag in {len(rows)} partitions")]
    if not description.members:
        return []
    await asyncio.sleep(observe_seconds)
    later = await view.committed(description.group)
    findings = []
    for tp, row in behind.items():
        if later.get(tp) != row.committed:
            continue
        message = f"stuck: lag {row.lag}, no commit within {observe_seconds:g} s"
        if row.member_id is None:
            message += ", and no member owns it"
            advice = "Check whether a member subscribes to the topic, and repeat after a rebalance"
        else:
            message += f"; the owner is {row.member_id} at {row.host}"
            advice = "Look at the log and the health page of this member: a record may block it"
        findings.append(Finding("warning", "progress", str(tp), message, advice))
    if not findings:
        message = f"{len(behind)} partitions have a lag, and all of them advance"
        findings.append(Finding("ok", "progress", subject, message))
    return findings
