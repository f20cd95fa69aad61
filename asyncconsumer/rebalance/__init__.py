"""The change from one assignment of a consumer to the next."""

from asyncconsumer.rebalance.ports import Listeners, Streams
from asyncconsumer.rebalance.rebalancer import Rebalancer

__all__ = ["Listeners", "Rebalancer", "Streams"]
