"""Shipping the package to the executors of a Spark cluster."""
