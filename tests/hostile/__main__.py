"""What a tenant or an operator may do to a scheduler, played against a scheduler process, and what it costs everybody else.

Each scenario creates hostile objects, or does something hostile to the process, and has innocent pods scheduled meanwhile. A
line for each scenario and scheduler says how many of them were bound, and how soon (median, 99th percentile, maximum); how soon
/healthz answered, polled every 50 ms; the longest time without a renewal of the lease; the longest lag of the loop; memory and
CPU of the process with its children; and what is short of the limits. The exit status is 1 if ours was short anywhere.

With --server, or in the environment of a real API server (REAL_SERVER, REAL_TOKEN, REAL_KUBECONFIG), the scenarios are played there
at full scale. It must have no nodes of its own, and no controller manager is needed; all objects carry the label `hostile`, and are
removed in the end, or at the next start. Without, they are played on a simulated API server at small scale.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.hostile.result import table
from tests.hostile.runner import running
from tests.hostile.scenarios import SCENARIOS
from tests.hostile.schedulers import Server
from tests.hostile.stage import FULL, SMALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.hostile.result import Result


def main() -> int:
    options = _parser().parse_args()
    names = [name for name in SCENARIOS if not options.only or any(name.startswith(o) for o in options.only)]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    rows = asyncio.run(_play(names, options))
    if options.table:
        sys.stdout.write(table(rows) + "\n")
    short = [ours.name for ours, theirs in rows if ours.short(theirs)]
    sys.stdout.write(f"short: {', '.join(short) or 'none'}\n")
    return 1 if short else 0


def _parser() -> argparse.ArgumentParser:
    words = "\n".join(f"  {name:32} {it.words}" for name, it in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.hostile",
        description=__doc__,
        epilog=f"scenarios:\n{words}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", nargs="*", metavar="NAME", help="scenarios whose names begin so; all if not given"
    )
    parser.add_argument(
        "--against", metavar="PATH", help="play each with this kube-scheduler too, right afterwards"
    )
    parser.add_argument("--table", action="store_true", help="print a table of Markdown in the end")
    parser.add_argument(
        "--server", default=os.environ.get("REAL_SERVER", ""), metavar="URL", help="a real API server"
    )
    parser.add_argument(
        "--token", default=os.environ.get("REAL_TOKEN", ""), help="of somebody who may do everything"
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        default=os.environ.get("REAL_KUBECONFIG", ""),
        metavar="FILE",
        help="for the scheduler",
    )
    parser.add_argument(
        "--simulated", action="store_true", help="the simulated API server whatever the environment says"
    )
    parser.add_argument(
        "--scale", type=float, help="multiplies what scenarios create; 1 on a real API server"
    )
    parser.add_argument("--nodes", type=int, help="of the cluster; 5000 on a real API server")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="an empty folder, for the schedulers' logs")
    return parser


async def _play(names: Sequence[str], options: argparse.Namespace) -> list[tuple[Result, Result | None]]:
    rows: list[tuple[Result, Result | None]] = []
    server, size = None, replace(SMALL, observes=True)
    if options.server and not options.simulated:
        server, size = Server(options.server, options.token, options.kubeconfig), FULL
    size = replace(size, scale=options.scale or size.scale, nodes=options.nodes or size.nodes)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.logs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        async with running(size, folder, server, binary=options.against or "") as runner:
            for scenario in (SCENARIOS[name] for name in names):
                ours, theirs = await runner.play(scenario), None
                if options.against and not scenario.is_ours:
                    theirs = await runner.play(scenario, "kube-scheduler")
                    sys.stdout.write(theirs.line() + "\n")
                sys.stdout.write(ours.line(theirs) + "\n")
                sys.stdout.flush()
                rows.append((ours, theirs))
    return rows


if __name__ == "__main__":
    sys.exit(main())
