"""`python -m tests.faults SEED`: play one campaign again and tell its story."""

from __future__ import annotations

import argparse
import logging
import sys

from tests.faults.campaign import run
from tests.faults.telling import whole


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("seed", type=int, help="which campaign")
    parser.add_argument(
        "--pod", action="append", default=[], metavar="NAME", help="a pod to tell more of; may be repeated"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, handlers=[logging.NullHandler()])
    report = run(options.seed)
    for line in whole(report, options.pod):
        sys.stdout.write(f"{line}\n")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
