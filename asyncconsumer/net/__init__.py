"""Broker sockets: connections, which one to use, and what the cluster looks like."""
