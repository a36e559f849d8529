"""Decides for the pods of another scheduler, writes nothing, and compares with what that one does."""
