"""SchedulerProfile objects: which versions are active beside the configuration's profiles, and why."""
