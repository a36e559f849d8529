"""Groups of pods as the PodGroups of scheduler-plugins and of Volcano describe them."""
