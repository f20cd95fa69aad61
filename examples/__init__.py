"""Minimal services, which the tests run on real brokers."""
