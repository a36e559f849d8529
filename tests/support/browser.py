"""A real browser, driven as a person would; where none is installed its tests are skipped, but not in CI.

A start takes seconds of the processor, and a context half a second, so all tests of a process share one browser, and those
with the same options a context. Each has a page of its own, and no cookies or stored values of another. The browser belongs
to an event loop, in which these tests run: `pytest.mark.run(by=run_with_browser)`.
"""

from __future__ import annotations

import asyncio
import atexit
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import async_playwright

from tests.support.binaries import needed_binary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, ViewportSize

T = TypeVar("T")

PATIENCE_MS = 60_000
DESKTOP: Final[ViewportSize] = {"width": 1400, "height": 1000}
_RULES_ABOUT_COLOURS: Final = ("color-contrast", "link-in-text-block")
_RUNNER: Final = asyncio.Runner()
_started: list[Browser] = []
_contexts: dict[str, BrowserContext] = {}


class Complaints(list[str]):
    """What the browser finds wrong with a page: errors of scripts, and what its policy kept from running."""

    def hear(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.append(message.text)


def run_with_browser(test: Coroutine[Any, Any, T]) -> T:
    """Run a test in the event loop of the browser."""
    return _RUNNER.run(test)


@asynccontextmanager
async def browsing(**options: Any) -> AsyncIterator[tuple[Page, Complaints]]:
    """Open a page in Debian's chromium; options are those of a context."""
    context = await _context({"viewport": DESKTOP, **options})
    page = await context.new_page()
    try:
        complaints = Complaints()
        page.on("console", complaints.hear)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page, complaints
    finally:
        await page.evaluate("if (origin !== 'null') localStorage.clear()")
        await page.close()
        await context.clear_cookies()


async def assert_accessible(page: Page, *rules: str) -> None:
    """Let axe check the page: contrast, names of elements, use by keyboard; or only some rules."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE_SCRIPT)
    options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    found = await page.evaluate("async (options) => (await axe.run(options)).violations", options)
    faults = [(each["id"], [at["html"] for at in each["nodes"]]) for each in found]
    assert faults == [], page.url


async def assert_accessible_in_all_colours(page: Page) -> None:
    """Check the page in light colours, and what depends on colours in dark ones too."""
    await page.emulate_media(color_scheme="light")
    await assert_accessible(page)
    await page.emulate_media(color_scheme="dark")
    await assert_accessible(page, *_RULES_ABOUT_COLOURS)


async def _context(options: dict[str, Any]) -> BrowserContext:
    browser, key = await _browser(), repr(options)
    if key not in _contexts:
        _contexts[key] = await browser.new_context(**options)
        _contexts[key].set_default_timeout(PATIENCE_MS)
    return _contexts[key]


async def _browser() -> Browser:
    """Return the browser of this process, a new one if it crashed."""
    if not _started or not _started[-1].is_connected():
        path = needed_binary("chromium", "Debian's chromium")
        driver = await async_playwright().start()
        if not _started:
            atexit.register(_RUNNER.close)
        atexit.register(lambda: _RUNNER.run(driver.stop()))  # before the loop is closed
        _contexts.clear()
        _started.append(await driver.chromium.launch(executable_path=path, args=["--no-sandbox"]))
    return _started[-1]
