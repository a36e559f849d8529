"""KubeSchedulerConfiguration: strict parsing, defaults, writing, and expansion of profiles.

`load.load`, `parse` and `default` return a `Configuration`; `profile_plugins.expand_in_steps` lists the plugins of
each extension point.
"""
