"""CustomResourceDefinitions and their kinds: schemas, defaults, columns, rules."""
