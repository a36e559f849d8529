"""A real browser, driven as a person would; where none is installed its tests are skipped, but not in CI."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from playwright.async_api import async_playwright

from tests.support.binaries import needed_binary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import ConsoleMessage, Page

PATIENCE_MS = 60_000


class Complaints(list[str]):
    """What the browser finds wrong with a page: errors of scripts, and what its policy kept from running."""

    def hear(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.append(message.text)


@asynccontextmanager
async def browsing(**options: Any) -> AsyncIterator[tuple[Page, Complaints]]:
    """Open a page in Debian's chromium; options are those of a context."""
    path = needed_binary("chromium", "Debian's chromium")
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            context = await browser.new_context(**{"viewport": {"width": 1400, "height": 1000}, **options})
            context.set_default_timeout(PATIENCE_MS)
            page = await context.new_page()
            complaints = Complaints()
            page.on("console", complaints.hear)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            yield page, complaints
        finally:
            await browser.close()
