"""The feeder, which writes each record of a consumer to a sink exactly once."""
