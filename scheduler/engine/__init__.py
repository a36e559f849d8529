"""The scheduling engine: cache, queue, plugin calls, and the cycles of pods and groups."""
