"""API objects, decoded once into typed values.

The modules here do not depend on the source of an object. They decode only the fields that scheduling reads;
the bytes of nodes and pending pods are kept for plugins that need the whole object.
"""
