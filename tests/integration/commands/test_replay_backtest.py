"""`custom-scheduler replay --config` on files: its text, its JSON, its page in a real browser, and its refusals."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from copy import deepcopy
from random import Random
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from scheduler.configuration.load import parse
from scheduler.daemon.recording import RecordingLimits
from scheduler.daemon.recording.recording import Recording
from scheduler.tools.board.backtest_page import page_of
from scheduler.tools.whatif.backtest.backtest_run import as_recorded, backtest, material_of
from scheduler.tools.whatif.backtest.recorded_history import read_history
from scheduler.tools.whatif.backtest.result import Backtest
from tests.recording.test_backtest import PACKING, SPREADING
from tests.support import virtual_time
from tests.support.browser import (
    PATIENCE_MS,
    assert_accessible_in_all_colours,
    browsing,
    run_with_browser,
)
from tests.support.builders import node_object, pod_object
from tests.support.commands import forked_program
from tests.support.daemon_harness import cluster
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.run(by=run_with_browser)

HOSTILE = "<img src=x onerror=document.title='hit'><script>document.title='hit'</script></script>"
PODS = 24

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording: pods that come and go on six nodes in two zones, and one that fits nowhere."""
    there = tmp_path_factory.mktemp("recorded")
    where = there / "recording"

    async def main() -> None:
        recording = Recording(
            RecordingLimits(where), LoopClock(), Random(7), max_in_unschedulable_seconds=300.0
        )
        async with (
            cluster(there, kubelet=True) as it,
            it.daemon(SPREADING, ports=recording.recorder) as daemon,
            recording.of(daemon),
        ):
            zone = "topology.kubernetes.io/zone"
            it.add_nodes(
                *(node_object(f"n{each}", cpu="4", labels={zone: f"zone-{each % 2}"}) for each in range(6))
            )
            await asyncio.sleep(1.0)
            it.add_pods(pod_object("huge", cpu="9"))
            for each in range(PODS):
                it.add_pods(pod_object(f"p{each}", cpu=f"{(each % 3 + 1) * 250}m"))
                await asyncio.sleep(1.3)
                if each % 4 == 3 and each < 12:
                    it.server.store.delete("pods", f"p{each - 2}", "default")
            for each in range(12, 20):
                it.server.store.delete("pods", f"p{each}", "default")
            await asyncio.sleep(5.0)
            it.add_nodes(*(node_object(f"new-{each}", cpu="4") for each in range(9)))
            await asyncio.sleep(1.0)

    virtual_time.run(main())
    (there / "packing.yaml").write_text(PACKING)
    (there / "broken.py").write_text("raise ImportError('not here')")
    (there / "broken.yaml").write_text(PACKING.replace("enabled: [", "enabled: [{name: broken.py}, "))
    (there / "spreading.yaml").write_text(SPREADING)
    return there


def replay(
    folder: Path, *arguments: str, program: Sequence[str] = (), hash_seed: str = "0"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*(program or [forked_program()]), "replay", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_a_backtest_is_the_same_for_every_hash_seed(folder: Path) -> None:
    said = [
        replay(
            folder,
            "recording",
            "--config",
            "packing.yaml",
            "--config",
            "spreading.yaml",
            "-o",
            "json",
            program=(sys.executable, "-m", "scheduler"),
            hash_seed=seed,
        )
        for seed in ("1", "2")
    ]

    assert [each.stderr for each in said] == ["", ""]
    assert said[0].stdout == said[1].stdout
    reported = json.loads(said[0].stdout)
    packing, spreading = reported["runs"]
    assert (packing["configuration"], spreading["configuration"]) == ("packing.yaml", "spreading.yaml")
    assert packing["moves"]["elsewhere"] > 0
    assert spreading["moves"] == reported["baseline"]["moves"]
    assert reported["baseline"]["moves"]["elsewhere"] == 0
    assert len(packing["figures"]["nodes"]["emptyNames"]) > 9
    assert reported["recorded"]["figures"]["placed"] == packing["figures"]["placed"] == PODS
    assert [each["pod"] for each in packing["figures"]["unplaced"]] == ["default/huge"]


def test_it_fits_into_a_terminal_of_80_columns(folder: Path) -> None:
    said = replay(folder, "recording", "--config", "packing.yaml", "--config", "spreading.yaml")

    assert (said.returncode, said.stderr) == (0, "")
    assert max(len(line) for line in said.stdout.splitlines()) <= 80
    verdict = "packing, compared with the recorded configuration: better: nodes in use"
    assert " ".join(said.stdout.split()).startswith(verdict)
    assert "as recorded configuration packing spreading" in " ".join(said.stdout.split())
    assert "another node scored higher, decided by NodeResourcesFit" in said.stdout
    assert f"recorded configuration: 0 pods on another node, {PODS} on the recorded node" in said.stdout


def test_a_truncated_recording_is_read_up_to_the_last_whole_record(folder: Path, tmp_path: Path) -> None:
    whole = next((folder / "recording").glob("*.rec"))
    torn = tmp_path / whole.name
    torn.write_bytes(whole.read_bytes()[:-2000])

    said = replay(folder, str(torn), "--config", "packing.yaml")

    assert said.returncode == 0, said.stderr
    assert f"the end of {torn.name} is missing" in " ".join(said.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["nothing", "--config", "packing.yaml"],
            "nothing: there is no recording (no file *.rec)",
            id="no recording",
        ),
        pytest.param(["recording", "--config", "none.yaml"], "none.yaml", id="no such configuration"),
        pytest.param(["recording", "--config", "broken.yaml"], "broken.yaml: ", id="a broken plugin"),
        pytest.param(
            ["recording", "--html", "page.html"],
            "--html and --output need --config, --emulated-version or --feature-gates",
            id="a page without a configuration",
        ),
        pytest.param(
            ["recording", "--config", "packing.yaml", "--pod", "p0"],
            "--pod shows the recording: it cannot be combined with --config",
            id="two questions at once",
        ),
        pytest.param(
            ["recording", "--emulated-version", "1.37", "--pod", "p0"],
            "--pod shows the recording: it cannot be combined with",
            id="the recording in another version",
        ),
        pytest.param(
            ["recording", "--config", "packing.yaml", "--html", "no/such/folder.html"],
            "no/such/folder.html",
            id="a page that cannot be written",
        ),
    ],
)
def test_an_impossible_request_is_reported_in_one_line(
    folder: Path, arguments: list[str], message: str
) -> None:
    said = replay(folder, *arguments)

    assert said.returncode == 2
    assert said.stderr.startswith("error: ")
    assert message in said.stderr
    assert "Traceback" not in said.stderr


# The page.


@pytest.fixture(scope="module")
def result(folder: Path) -> Backtest:
    material = material_of(read_history(folder / "recording"))
    return Backtest(
        recorded=as_recorded(material),
        baseline=backtest(material, material.recorded, "recorded configuration"),
        no_baseline="",
        runs=[backtest(material, parse(PACKING), HOSTILE)],
    )


def written(path: Path, result: Backtest) -> str:
    """Write the page, and return where it is."""
    path.write_text(page_of(result), encoding="utf-8")
    return path.as_uri()


async def test_the_page_needs_no_network_and_has_a_table_beside_each_chart(
    result: Backtest, tmp_path: Path
) -> None:
    async with browsing(offline=True) as (page, complaints):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(written(tmp_path / "page.html", result))

        figures = page.get_by_role("region", name="Figures", exact=True)
        await expect(figures.get_by_role("row", name="placed 24 24 24", exact=True)).to_be_visible()
        charts = page.locator("figure")
        assert await charts.count() == await page.locator("figure canvas").count() >= 9
        first = charts.first
        await first.locator("summary").focus()
        await page.keyboard.press("Enter")
        await expect(first.get_by_role("table")).to_be_visible()
        await expect(first.get_by_role("columnheader", name="as recorded")).to_be_visible()
        assert [url for url in asked if not url.startswith("file:")] == []
        assert complaints == []


async def test_names_are_shown_as_text(result: Backtest, tmp_path: Path) -> None:
    result = deepcopy(result)
    move = result.runs[0].moves.examples[0]
    result.runs[0].moves.examples[0] = type(move)(
        at=move.at,
        pod=HOSTILE,
        recorded=HOSTILE,
        now=HOSTILE,
        cause=move.cause,
        by=HOSTILE,
        scores={HOSTILE: (1, 2)},
    )
    result.runs[0].moves.causes["higher score"] = {HOSTILE: 1}
    result.recorded.source = HOSTILE
    async with browsing() as (page, complaints):
        await page.goto(written(tmp_path / "page.html", result))

        await page.locator("summary", has_text="pods on another node").first.click()
        await expect(page.get_by_role("rowheader", name=HOSTILE, exact=True).first).to_be_visible()
        assert await page.title() == f"Backtest of {HOSTILE}"
        assert await page.locator("img").count() == 0
        assert complaints == []


async def test_all_users_can_read_the_page(result: Backtest, tmp_path: Path) -> None:
    result = deepcopy(result)
    for _, figures in result.columns:
        del figures.samples[
            4:
        ]  # the rows of a chart's table are alike, and axe takes milliseconds for each cell
    async with browsing() as (page, _):
        await page.goto(written(tmp_path / "page.html", result))
        for summary in await page.locator("summary").all():
            await summary.click()

        await assert_accessible_in_all_colours(page)
