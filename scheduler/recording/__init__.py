"""What a scheduler was told and what it decided, written to files, so that it can be gone through again."""
