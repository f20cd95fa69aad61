"""Middlewares for handlers."""
