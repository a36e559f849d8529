"""/metrics, and whether the process is well: /healthz, /livez, /readyz.

It shares the main loop on purpose: a scheduler that is stuck must not say that it is well.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    Check = Callable[[], str]  # "" when all is well, else what is not
    Page = Callable[[], tuple[bytes, Mapping[str, str]]]


def application(*, metrics: Page, live: Mapping[str, Check], ready: Mapping[str, Check]) -> web.Application:
    """Build the server's routes.

    Args:
        metrics: gives the body and the headers of /metrics.
        live: check's name -> check, of /livez and /healthz; they fail when only a restart can help.
        ready: the same of /readyz, beside the former; they fail until the scheduler can place pods.
    """

    async def show_metrics(_request: web.Request) -> web.Response:
        body, headers = metrics()
        return web.Response(body=body, headers=headers)

    app = web.Application()
    app.router.add_get("/metrics", show_metrics)
    app.router.add_get("/healthz", _answer("healthz", live))
    app.router.add_get("/livez", _answer("livez", live))
    app.router.add_get("/readyz", _answer("readyz", {**live, **ready}))
    return app


def _answer(name: str, checks: Mapping[str, Check]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        found = {check: problem() for check, problem in checks.items()}
        failed = any(found.values())
        if not failed and "verbose" not in request.query:
            return web.Response(text="ok")
        lines = [
            f"[-]{check} failed: {problem}" if problem else f"[+]{check} ok"
            for check, problem in found.items()
        ]
        lines.append(f"{name} check {'failed' if failed else 'passed'}")
        return web.Response(text="\n".join(lines) + "\n", status=500 if failed else 200)

    return answer


@asynccontextmanager
async def serving(app: web.Application, host: str, port: int) -> AsyncIterator[int]:
    """Serve while the block runs.

    Args:
        app: the routes.
        host: the address to listen on.
        port: 0 takes any that is free.

    Yields:
        The port.

    Raises:
        OSError: the address cannot be listened on.
    """
    # Access logs of every probe and scrape would drown the rest.
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
