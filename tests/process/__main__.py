"""`python -m tests.process`: what goes wrong between processes, how long it takes until pods are placed again, and what it cost.

With the usual times of leader election it takes about ten minutes; `--short` uses those of the tests.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.process.faults import FAULTS, play
from tests.process.world import SHORT, USUAL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.process.faults import Outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.process", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=FAULTS, default=list(FAULTS), help="which")
    parser.add_argument("--replicas", nargs="*", type=int, default=[2, 3], help="how many daemons")
    parser.add_argument("--short", action="store_true", help="leases of 4 s instead of 15 s")
    parser.add_argument("--logs", type=Path, help="where to keep the daemons' logs")
    options = parser.parse_args()
    times = SHORT if options.short else USUAL
    sys.stdout.write(
        f"lease {times.lease:g} s, renew deadline {times.deadline:g} s, retry period {times.retry:g} s\n"
        f"{'fault':26s} replicas  failover s  lost double excess late  409s  ended\n"
    )
    broken = 0
    for fault in options.only:
        for replicas in options.replicas:
            with tempfile.TemporaryDirectory() as temporary:
                folder = options.logs / f"{fault} {replicas}" if options.logs else Path(temporary)
                folder.mkdir(parents=True, exist_ok=True)
                it = asyncio.run(_only(play(folder, fault, replicas=replicas, times=times)))
            sys.stdout.write(
                f"{fault:26s} {replicas:8d}  {it.failover_seconds:10.2f}  {it.lost:4d} {it.double:6d} "
                f"{it.excess:6d} {it.late:4d} {it.refused:5d}  {' '.join(map(str, it.ends)) or 'none'}\n"
            )
            sys.stdout.flush()
            broken += bool(it.lost or it.double or it.excess or it.late)
    sys.stdout.write(f"broken promises: {broken}\n")
    return 1 if broken else 0


async def _only(outcomes: AsyncIterator[Outcome]) -> Outcome:
    (outcome,) = [outcome async for outcome in outcomes]
    return outcome


if __name__ == "__main__":
    sys.exit(main())
