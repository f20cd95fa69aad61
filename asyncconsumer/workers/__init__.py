"""Worker processes that run an app, and their supervisor."""
