"""Integration with web apps: lifespan, health pages and metrics."""
