"""A scheduler for Kubernetes whose plugins are single Python files."""
