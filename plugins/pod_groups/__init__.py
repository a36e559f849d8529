"""The plugins of groups of pods: their PodGroups, trees of groups, gangs, and the placements of a group."""
