"""The worker processes that run an app, and their supervisor."""
