"""From an object and a patch to another object: JSON patches, strategic merge, and server-side apply with its managedFields."""
