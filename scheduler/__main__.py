"""`python -m scheduler` is the command `custom-scheduler`."""

from scheduler.cli import main

main()
