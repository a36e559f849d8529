"""What to fill a server with and what happens to it: made-up clusters, manifests, and scenarios from a YAML file."""
