"""Lookup of a group's session timeout, which heartbeat responses do not contain."""

import logging
from typing import Final

from aiokafka.protocol.admin import DescribeConfigsRequest

from asyncconsumer.errors import BrokerError, ConsumerError
from asyncconsumer.net.cluster import Cluster

_log: Final = logging.getLogger(__name__)
_GROUP: Final = 32  # the config resource type of groups
_SETTING: Final = "consumer.session.timeout.ms"


async def session_timeout_ms(cluster: Cluster, group_id: str, otherwise: int) -> int:
    """Return the group's session timeout; `otherwise` if it is denied or unknown."""
    try:
        answer = await cluster.ask_any(DescribeConfigsRequest([(_GROUP, group_id, [_SETTING])]))
        for resource in answer.to_object()["resources"]:
            if code := resource["error_code"]:
                raise BrokerError.of(code, f"the settings of group {group_id!r}")
            for entry in resource["config_entries"]:
                if entry["config_names"] == _SETTING and str(entry["config_value"]).isdecimal():
                    return int(entry["config_value"])
    except ConsumerError as error:
        _log.info(
            "group %s: taking %d ms for its session timeout, for nobody tells: %s",
            *(group_id, otherwise, error),
        )
    return otherwise
