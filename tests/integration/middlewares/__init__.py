"""Middlewares on real servers."""
