"""Asyncio helpers: task scopes, retries with backoff, threads and rate-limited logging."""
