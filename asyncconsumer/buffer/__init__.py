"""The chunks of fetched records, and the channels that buffer them between fetchers and streams."""
