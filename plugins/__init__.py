"""The plugins that come with the scheduler: a file each, or a folder where one file would be too long.

`registry` lists them.
"""
