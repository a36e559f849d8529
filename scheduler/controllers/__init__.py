"""What kopf watches for us, in a thread of its own; its death costs what it brings and nothing else."""
