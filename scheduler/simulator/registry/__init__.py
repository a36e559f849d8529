"""The verbs on stored objects, as functions: create, update, patch, delete, bind, evict, scale."""
