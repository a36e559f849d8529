"""The documentation site is built without a warning, requests nothing from other hosts, and shows its diagrams."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect

from tests.support.browser import PATIENCE_MS, browsing, run_with_browser

if TYPE_CHECKING:
    from playwright.async_api import Route

pytestmark = pytest.mark.run(by=run_with_browser)

ROOT = Path(__file__).parents[3]
HOST = "site.example"
OPEN_SHADOWS = """
    const attach = Element.prototype.attachShadow;
    Element.prototype.attachShadow = function (options) { return attach.call(this, {...options, mode: "open"}); };
"""
"""The theme draws diagrams in closed shadow trees, which tests cannot look into."""

DIAGRAM = re.compile(r'<pre class="mermaid">.*?</pre>', re.DOTALL)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
        timeout=600,
    )
    return folder


class Loaded(HTMLParser):
    """The addresses that a page loads by itself: scripts, styles, fonts, icons, pictures and frames."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and given.get("rel") not in {"next", "prev", "canonical"}:
            self.addresses.append(given.get("href") or "")
        elif tag != "a" and given.get("src"):
            self.addresses.append(given["src"] or "")


def test_pages_and_styles_name_no_other_host_for_what_they_load(site: Path) -> None:
    pages = {path: Loaded(path.read_text()).addresses for path in site.rglob("*.html")}
    styles = {
        path: re.findall(r"(?:url\(|@import\s)\s*[\"']?([^\"')]+)", path.read_text())
        for path in site.rglob("*.css")
    }
    loaded = pages | styles

    assert len(pages) > 60
    assert len(styles) > 1
    assert [
        (path.name, each) for path, found in loaded.items() for each in found if urlsplit(each).netloc
    ] == []


@pytest.fixture
def pages(site: Path) -> dict[Path, str]:
    """Return the texts of the pages with diagrams, in the order of their paths."""
    texts = {path: path.read_text() for path in sorted(site.rglob("index.html"))}
    return {path: text for path, text in texts.items() if DIAGRAM.search(text)}


async def test_diagrams_are_drawn_without_a_request_to_another_host(
    site: Path, pages: dict[Path, str]
) -> None:
    """All are on one page: to load the library takes a second, and the pages with diagrams load the same files."""
    loaded = {tuple(Path(each).name for each in Loaded(text).addresses) for text in pages.values()}
    assert len(pages) > 7
    assert len(loaded) == 1
    first = next(iter(pages))
    diagrams = [DIAGRAM.findall(text) for text in pages.values()]
    more = [each for found in diagrams[1:] for each in found]
    shown = pages[first].replace(diagrams[0][0], "\n".join([diagrams[0][0], *more]))
    elsewhere: list[str] = []

    async def answer(route: Route) -> None:
        url = urlsplit(route.request.url)
        file = site / url.path.lstrip("/")
        if url.netloc != HOST:
            elsewhere.append(route.request.url)
            await route.abort()
        elif file == first.parent:
            await route.fulfill(body=shown, content_type="text/html")
        elif file.is_file():
            await route.fulfill(path=file)
        else:  # the list of versions, which `mike` writes
            await route.fulfill(status=404)

    async with browsing() as (page, complaints):
        await page.add_init_script(OPEN_SHADOWS)
        await page.route("**/*", answer)
        await page.goto(f"http://{HOST}/{first.parent.relative_to(site)}/")
        drawn = page.locator("div.mermaid svg[aria-roledescription]")
        await expect(drawn).to_have_count(len(diagrams[0]) + len(more), timeout=PATIENCE_MS)
        kinds = [await each.get_attribute("aria-roledescription") for each in await drawn.all()]
    assert "error" not in kinds
    assert elsewhere == []
    assert complaints == []


def test_the_library_has_its_licence(site: Path) -> None:
    licence = (site / "assets" / "vendor" / "LICENSES.txt").read_text()

    assert licence.startswith("mermaid@")
    assert "MIT" in licence
