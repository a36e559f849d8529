"""`python -m tests.bench.replicas`: what a pod costs if several replicas place pods at the same time, all but sockets.

One of 1, 2, 4 or 8 replicas is built as for `run`. Instead of an API server, an object in the same process answers, and
binds the pods of the other replicas. What counts is CPU time. Machines differ; compare the lines of one run with each other.
The last lines are of that many processes at the same time, one for each replica: the pods that they place in a second of wall time.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.cli.process import run_in_loop
from scheduler.daemon.app.daemon import Daemon
from scheduler.daemon.app.memory import settle_memory
from scheduler.engine.sharding.buckets import bucket_of, key_of, wanted_owners
from scheduler.engine.sharding.shards import OwnShard
from scheduler.objects.decode import decode_pod
from tests.bench.whole_pod import Loopback, pending_pods, schedule_all, watched_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

_NODES = 5000
_PODS = 2000
_RUNS = 3
_REPLICAS = (1, 2, 4, 8)
_PROCESSES = (1, 2, 4)
_LONGEST = 300.0  # Seconds: a process that failed reports nothing.


class OneReplica(Daemon):
    """A daemon that uses some buckets all the time.

    Args:
        buckets: the buckets.
    """

    def __init__(self, *arguments: Any, buckets: Sequence[int], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.parts.profiles.shards = shard = OwnShard(self.parts.profiles.has_quota)
        shard.use(buckets)


class AtOnce(Loopback):
    """Creates its pods when the servers of all processes are ready.

    Attributes:
        barrier: is passed when all are ready; None if there is one process.
        began: when the pods were created.
    """

    barrier: Any = None
    began = 0.0

    def create_pods(self) -> None:
        if self.barrier is not None:
            self.barrier.wait()
        self.began = time.monotonic()
        super().create_pods()


def server_of(number: int, replicas: int, n_nodes: int, n_pods: int) -> tuple[AtOnce, list[int], int]:
    """Return what answers one of some replicas, its buckets, and the number of its pods."""
    members = [f"replica-{each}" for each in range(replicas)]
    own = [bucket for bucket, owner in enumerate(wanted_owners(members)) if owner == members[number]]
    others = [name for name in (f"n{each}" for each in range(n_nodes)) if bucket_of(name) not in own]
    pods = pending_pods(n_pods)
    elsewhere = {
        each["metadata"]["name"]: others[number % len(others)]
        for number, each in enumerate(pods)
        if bucket_of(key_of(decode_pod(msgspec.json.encode(each)))) not in own
    }
    return AtOnce(watched_nodes(n_nodes), pods, elsewhere), own, n_pods - len(elsewhere)


def seconds_of(replicas: int, n_nodes: int, n_pods: int) -> tuple[float, int]:
    """Return the CPU seconds of the first of some replicas, and the number of its pods."""
    server, own, count = server_of(0, replicas, n_nodes, n_pods)
    return run_in_loop(schedule_all(server, make=partial(OneReplica, buckets=own))), count


def _place(number: int, replicas: int, n_nodes: int, n_pods: int, barrier: Any, times: Any) -> None:
    """Place the pods of a replica, and report when that began and ended."""
    logging.disable(logging.WARNING)
    settle_memory()
    server, own, _ = server_of(number, replicas, n_nodes, n_pods)
    server.barrier = barrier
    run_in_loop(schedule_all(server, make=partial(OneReplica, buckets=own)))
    times.put((server.began, time.monotonic()))


def pods_a_second(replicas: int, n_nodes: int, n_pods: int) -> float:
    """Return how many pods replicas in processes of their own place in a second, all of them together."""
    context = multiprocessing.get_context("spawn")
    barrier, times = context.Barrier(replicas, timeout=_LONGEST), context.Queue()
    arguments = (replicas, n_nodes, n_pods, barrier, times)
    processes = [context.Process(target=_place, args=(number, *arguments)) for number in range(replicas)]
    for each in processes:
        each.start()
    began, ended = zip(*[times.get(timeout=_LONGEST) for _ in processes], strict=True)
    for each in processes:
        each.join()
    return float(n_pods / (max(ended) - min(began)))


def print_table(n_nodes: int, n_pods: int) -> None:
    """Print what a pod costs one of several replicas, and all of them together."""
    base = 0.0
    for replicas in _REPLICAS:
        seconds, own = min(seconds_of(replicas, n_nodes, n_pods) for _ in range(_RUNS))
        of_other = (seconds - base * own) / (n_pods - own) if own < n_pods else 0.0
        base = base or seconds / own
        of_all = seconds * replicas / n_pods
        print(
            f"{f'one of {replicas} replicas, {own} of {n_pods} pods':50}{seconds / n_pods * 1e6:9.0f} us"
            f"{of_other * 1e6:9.0f} us a pod of others{of_all / base:8.2f}x for all replicas"
        )


def print_rate(replicas: int, n_nodes: int, n_pods: int, runs: int) -> None:
    """Print how many pods replicas in processes of their own place in a second."""
    rate = max(pods_a_second(replicas, n_nodes, n_pods) for _ in range(runs))
    print(f"{f'{replicas} processes on {os.cpu_count()} processors':50}{rate:9.0f} pods a second")


def main() -> None:
    """Print the table."""
    logging.disable(logging.WARNING)
    settle_memory()
    print_table(_NODES, _PODS)
    for replicas in _PROCESSES:
        print_rate(replicas, _NODES, _PODS, _RUNS)


if __name__ == "__main__":
    main()
