"""The classic high-level consumer."""

from asyncconsumer.connector.connector import ConsumerConnector
from asyncconsumer.connector.listener import RebalanceListener
from asyncconsumer.outside import Outside

__all__ = ["ConsumerConnector", "Outside", "RebalanceListener"]
