"""What CustomResourceDefinitions may say, and the kinds they bring: schemas, defaults, columns, rules."""
