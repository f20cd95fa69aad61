"""Fetching records from brokers."""
