"""The assets of the page, and a policy that permits no others."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from scheduler.daemon.server.http_server import Application
from scheduler.tools.board.pages import _assets, board_pages
from tests.unit.daemon.server.one_request import ask

ASSETS = _assets()


async def nobody() -> None:
    raise AssertionError


def app() -> Application:
    return Application(board_pages(nobody), None, 1000)  # type: ignore[arg-type]


def test_the_assets_exist() -> None:
    assert {"index.html", "main.js", "board.css", "preact.js", "uplot.js", "icon.svg"} <= ASSETS.keys()


@pytest.mark.parametrize(
    "path", ["/board", "/board/", *(f"/board/assets/{name}" for name in ASSETS if name != "index.html")]
)
def test_every_page_has_a_strict_content_security_policy(path: str) -> None:
    answer = ask(app(), path)

    assert answer.status == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "'unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_the_page_has_no_inline_script_or_style() -> None:
    page = ASSETS["index.html"].decode()

    assert not re.search(r"<style|\son\w+=|\sstyle=|javascript:", page)
    assert re.findall(r"<script([^>]*)>([^<]*)<", page)
    assert all(
        "src=" in attributes and not text for attributes, text in re.findall(r"<script([^>]*)>([^<]*)<", page)
    )


@pytest.mark.parametrize("name", sorted(ASSETS))
def test_nothing_is_loaded_from_other_hosts(name: str) -> None:
    text = ASSETS[name].decode()
    imported = re.findall(r"""(?:from|import|src=|href=|url\()\s*["']?(\w+:)?//""", text)

    assert not imported


@pytest.mark.parametrize("name", sorted(name for name in ASSETS if name.endswith(".js")))
def test_no_script_writes_html(name: str) -> None:
    if (files("scheduler.tools.board") / "assets" / "vendor" / name).is_file():
        pytest.skip("a library's")

    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", ASSETS[name].decode()
    )


def test_every_imported_script_exists() -> None:
    wanted = {
        found
        for text in ASSETS.values()
        for found in re.findall(r'from ?"\./([\w.]+)"', text.decode("utf-8", "replace"))
    }

    assert wanted
    assert wanted <= ASSETS.keys()
    # The browser requests them all at once, and not one after the other finds the next.
    preloaded = re.findall(r'modulepreload" href="/board/assets/([\w.]+)"', ASSETS["index.html"].decode())
    assert sorted(wanted) == sorted(preloaded)


def test_the_libraries_have_their_licences() -> None:
    licences = (files("scheduler.tools.board") / "assets" / "vendor" / "LICENSES.txt").read_text()

    assert all(name in licences for name in ("preact@", "htm@", "uplot@", "MIT", "Apache"))
