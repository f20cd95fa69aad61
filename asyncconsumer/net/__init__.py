"""Broker sockets: connections, the connection pool, and cluster metadata."""
