"""A recording gone through again: the daemon's own code, told the same in the same order, decides anew."""
