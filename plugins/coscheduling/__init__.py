"""Groups of pods as PodGroups of scheduler-plugins and of Volcano describe them."""
