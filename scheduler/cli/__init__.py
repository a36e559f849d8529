"""The command line: `custom-scheduler run | demo | api-server | explain | why`."""

from scheduler.cli.command import main

__all__ = ["main"]
