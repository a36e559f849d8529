"""The plugins that come with the scheduler: one file each, or one package for a larger plugin; and what they share.

`registry` lists them.
"""
