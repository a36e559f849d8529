"""KubeSchedulerConfiguration: read strictly, completed with defaults, written back, expanded.

`load.load`, `parse` and `default` give a `Configuration`; `expand.expand_profiles` says which plugins run where.
"""
