"""Decides for the pods of another scheduler, writes nothing, and compares the decisions."""
