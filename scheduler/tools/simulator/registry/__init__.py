"""The verbs on stored objects: create, update, patch, delete, bind, evict, scale."""
