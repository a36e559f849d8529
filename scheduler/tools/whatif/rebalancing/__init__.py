"""Rebalancing: evictions after which the scheduler places pods better, and their execution one after another."""
