"""A live page of a cluster: groups, owners of partitions, lag, rebalances and dead letters.

from asyncconsumer.dashboard import dashboard

api.mount("/kafka", dashboard("localhost:9092"))
"""

from asyncconsumer.dashboard.site import DashboardSite
from asyncconsumer.dashboard.sites import dashboard

__all__ = ["DashboardSite", "dashboard"]
