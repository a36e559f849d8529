"""The command line: `custom-scheduler run`, `demo`, `api-server`, `explain`, `why` and others."""

from scheduler.cli.command import main

__all__ = ["main"]
