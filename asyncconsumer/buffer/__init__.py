"""The chunks between fetchers and streams, and the channels that buffer them."""
