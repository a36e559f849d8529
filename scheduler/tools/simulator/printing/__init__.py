"""Output of `kubectl get` for each kind: columns and cells."""
