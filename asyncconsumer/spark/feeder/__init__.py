"""The feeder: from a consumer into a sink, each record once."""
