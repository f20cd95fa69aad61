"""From one assignment to the next."""

from asyncconsumer.rebalancer.parties import Listeners, Streams
from asyncconsumer.rebalancer.rebalancer import Rebalancer

__all__ = ["Listeners", "Rebalancer", "Streams"]
