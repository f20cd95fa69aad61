"""The connections to brokers: sockets, the connection pool, and cluster metadata."""
