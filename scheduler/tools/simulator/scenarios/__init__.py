"""The content of a server: generated clusters, manifests, and scenarios from a YAML file."""
