"""Members in the racks of real brokers."""

from aiokafka.admin import NewTopic

from asyncconsumer.group.assignors import CooperativeStickyAssignor
from asyncconsumer.testing.handles import KafkaCluster
from tests.support.consumer_members import admin_of
from tests.support.helpers import until
from tests.support.real_classic_group import open_member

NEAR = {1: {1, 4}, 2: {2, 3}, 3: {0, 5}}
"""The partitions of each broker. Each broker has a rack of its own."""


async def test_members_get_partitions_of_their_rack(kafka_cluster: KafkaCluster) -> None:
    topic, group = kafka_cluster.group(), kafka_cluster.group()
    places = {number: [node] for node, numbers in NEAR.items() for number in numbers}
    async with admin_of(kafka_cluster) as admin:
        await admin.create_topics([NewTopic(topic, -1, -1, replica_assignments=places)])
    await kafka_cluster.admin.wait_for_topic(topic, len(places))

    servers, assignors = kafka_cluster.bootstrap_servers, [CooperativeStickyAssignor()]
    async with (
        open_member(servers, group, topic, assignors, client_rack="rack-1") as member,
        open_member(servers, group, topic, assignors, client_rack="rack-2") as two,
        open_member(servers, group, topic, assignors, client_rack="rack-3") as three,
    ):
        await until(lambda: [member.numbers, two.numbers, three.numbers] == list(NEAR.values()))
        for following in (member, two, three):
            await following.leave()
