"""The classic high-level consumer."""

from asyncconsumer.connector.connector import ConsumerConnector
from asyncconsumer.connector.listener import RebalanceListener
from asyncconsumer.connector.outside import Outside

__all__ = ["ConsumerConnector", "Outside", "RebalanceListener"]
