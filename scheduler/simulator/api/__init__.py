"""From an HTTP request to its answer: what it is about, its body, lists, watches, discovery, and how objects go over the wire."""
