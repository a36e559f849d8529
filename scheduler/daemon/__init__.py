"""The scheduler process: its assembly, HTTP endpoints, metrics, logs, recordings and configuration."""
