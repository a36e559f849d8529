"""The command line: `custom-scheduler run | demo | api-server`."""

from scheduler.cli.command import main

__all__ = ["main"]
