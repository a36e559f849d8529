"""The board of a cluster in a file; each pending pod is evaluated once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scheduler.engine.cycle.attempt_log import AttemptLog
from scheduler.tools.board.current_decision import current_decision
from scheduler.tools.board.subject import DaemonDecisions, Subject, SubjectKind
from scheduler.tools.whatif.evaluation import pods_to_evaluate
from scheduler.tools.whatif.offline import OfflineScheduler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.configuration.load import Configuration
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.cluster_file import ClusterFile


class FileBoard:
    """The content of a file, and evaluations of its pending pods.

    Attributes:
        subject: the subject of the board.

    Raises:
        ConfigurationError: a plugin is unknown, broken, or has bad arguments.
        ObjectError: an object that a plugin needs is malformed.
    """

    def __init__(self, cluster: ClusterFile, configuration: Configuration, *, refresh: bool = True) -> None:
        self._scheduler = OfflineScheduler(cluster, configuration, refresh=refresh)
        parts = self._scheduler.parts
        parts.pods.update({pod.key: pod for pod in cluster.pods if not pod.is_terminal})
        self._pending: Sequence[PodInfo] = pods_to_evaluate(self._scheduler, cluster.pods)
        attempts = AttemptLog()
        self.subject = Subject(
            SubjectKind.FILE, parts, parts.clock, lambda: configuration, attempts, DaemonDecisions(attempts)
        )

    async def judge(self) -> None:
        """Evaluate every pending pod in the cluster as it is, and yield to other tasks in between."""
        parts, clock = self._scheduler.parts, self._scheduler.parts.clock
        for pod in self._pending:
            began = clock.monotonic()
            decision = current_decision(parts, self._scheduler.frameworks[pod.scheduler_name], pod)
            if decision is not None:
                self.subject.attempts.note(
                    decision,
                    parts.cache.snapshot(),
                    number=1,
                    at=clock.utc_now(),
                    seconds=clock.monotonic() - began,
                )
            await asyncio.sleep(0)
