"""A pod's way: the scheduling cycle decides, the binding cycle carries out, event handlers keep both informed."""
