"""The sinks of a feeder: landing folders, Delta tables and functions."""
