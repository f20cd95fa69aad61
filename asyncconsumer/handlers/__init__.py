"""Handlers: functions that process records, with concurrency, ordering and failure policies."""
