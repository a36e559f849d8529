"""The kinds that a new server serves, and their particular rules: defaults, admission, validation, deletion."""
