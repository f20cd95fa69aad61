"""The feeder: writes the records of a consumer to a sink, each once."""
