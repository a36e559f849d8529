"""API objects, parsed once into typed values.

Nothing here knows where an object came from. Only the fields that scheduling reads are decoded; the bytes
of nodes and pending pods are kept beside them for those who need the whole object.
"""
