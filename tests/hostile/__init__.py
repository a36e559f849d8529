"""What a tenant or an operator may do to a scheduler, played against a scheduler process: `python -m tests.hostile --help`."""
