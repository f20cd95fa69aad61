"""Integration of consumers and apps with web apps: lifespan, health pages and metrics."""
