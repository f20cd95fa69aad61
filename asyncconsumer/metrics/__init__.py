"""Metrics: the measurements of a consumer, and exporters for Prometheus and OpenTelemetry."""
