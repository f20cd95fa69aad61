"""Metrics: what a consumer measures, and exporters for Prometheus and OpenTelemetry."""
