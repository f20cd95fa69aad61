"""Sinks of a feeder: landing folders, Delta tables and functions."""
