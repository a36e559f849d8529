"""/healthz, /livez and /readyz: each a list of named checks, with an endpoint for each check.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/apiserver/pkg/server/healthz/healthz.go.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scheduler.daemon.server.messages import Page, ServerResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.daemon.server.messages import Handler, ServerRequest

    Check = Callable[[], str]  # "" if healthy, else the problem

logger = logging.getLogger(__name__)


def health_pages(path: str, checks: Mapping[str, Check]) -> list[Page]:
    """Return the endpoint of all checks, and one of each.

    The endpoint of all checks accepts `?verbose` and any number of `?exclude=NAME`. It withholds the reason of a failed
    check, since every client may read it; the log and the check's own endpoint have the reason. Without any check there is
    `ping`, which always succeeds.
    """
    checks = checks or {"ping": lambda: ""}
    own = [Page(f"{path}/{name}", _one(check)) for name, check in checks.items()]
    return [Page(path, _all(path.strip("/"), checks)), *own]


def _all(name: str, checks: Mapping[str, Check]) -> Handler:
    async def answer(request: ServerRequest) -> ServerResponse:
        excluded = dict.fromkeys(request.query.get("exclude", ()))
        failed: dict[str, str] = {}
        lines = []
        for check, problem_of in checks.items():
            if check in excluded:
                del excluded[check]
                lines.append(f"[+]{check} excluded: ok")
            elif problem := problem_of():
                failed[check] = problem
                lines.append(f"[-]{check} failed: reason withheld")
            else:
                lines.append(f"[+]{check} ok")
        if excluded:
            unknown = ",".join(f'"{check}"' for check in excluded)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown}")
        lines.append(f"{name} check {'failed' if failed else 'passed'}")
        if failed:
            logger.debug("Health check failed", extra={"path": request.path, "failed": failed})
        elif "verbose" not in request.query:
            return _answer("ok")
        return _answer("\n".join(lines) + "\n", status=500 if failed else 200)

    return answer


def _one(check: Check) -> Handler:
    async def answer(_request: ServerRequest) -> ServerResponse:
        problem = check()
        if problem:
            return _answer(f"internal server error: {problem}\n", status=500)
        return _answer("ok")

    return answer


def _answer(text: str, status: int = 200) -> ServerResponse:
    return ServerResponse(text.encode(), status, headers={"X-Content-Type-Options": "nosniff"})
