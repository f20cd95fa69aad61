"""Streams of topics to browsers, as server-sent events or over a WebSocket.

from asyncconsumer.browser import TopicEvents

api.mount("/orders", TopicEvents("orders", bootstrap_servers="localhost:9092"))
"""

from asyncconsumer.browser.topic_events import TopicEvents

__all__ = ["TopicEvents"]
