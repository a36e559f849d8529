"""The kinds a new server serves, and what is particular to each: defaults, admission, rules, deletion."""
