"""`custom-scheduler tune` writes files of candidates, a page and a table; the example of docs/tune.md works."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner

from scheduler.cli import tune as module
from scheduler.cli.check import check
from scheduler.cli.tune import tune
from scheduler.tools.board.tune_page import page_of
from scheduler.tools.whatif.tuning.comparison import Tuned
from tests.support.manifests import ROOT

if TYPE_CHECKING:
    from click.testing import Result

EXAMPLE = ROOT / "manifests" / "examples" / "tune" / "scenario.yaml"
STRATEGIES = "NodeResourcesFit.scoringStrategy={type: LeastAllocated}|{type: MostAllocated}"
FEW = ["--trials", "4", "--seeds", "1", "--held-out-seeds", "2", "--candidates", "1", "--processes", "1"]
HOSTILE = "<img src=x onerror=alert(1)>"


def run(out: Path, *arguments: str) -> Result:
    return CliRunner().invoke(tune, ["--scenario", str(EXAMPLE), "--out", str(out), *arguments])


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The result of a short search in the example, and its folder."""
    out = tmp_path_factory.mktemp("tune") / "tuned"
    return out, run(out, *FEW, "--parameter", "*=today", "--parameter", STRATEGIES)


def test_the_example_saves_nodes(example: tuple[Path, Result]):
    out, answer = example

    assert answer.exit_code == 0, answer.output
    assert answer.stdout.startswith("Best: candidate 1: better: nodes in use ")
    assert "NodeResourcesFit.scoringStrategy: {type: MostAllocated}" in " ".join(answer.stdout.split())
    assert answer.stdout.endswith(f"Written to {out}: profile.yaml, candidate-1.yaml, comparison.html\n")
    assert {each.name for each in out.iterdir()} == {
        "candidate-1.yaml", "comparison.html", "profile.yaml", "study.journal",
    }  # fmt: skip


def test_check_accepts_the_profile_and_the_profile_says_why(example: tuple[Path, Result]):
    out, _ = example

    answer = CliRunner().invoke(check, [str(out / "profile.yaml")])

    assert answer.exit_code == 0, answer.output
    text = (out / "profile.yaml").read_text()
    assert text == (out / "candidate-1.yaml").read_text()
    assert text.startswith("# custom-scheduler tune, ")
    assert "\n# candidate 1: better: nodes in use " in text
    assert text.endswith("type: MostAllocated\n")


def test_the_page_needs_no_network_and_shows_the_comparison(example: tuple[Path, Result]):
    out, _ = example
    page = (out / "comparison.html").read_text()
    loaded: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            loaded.extend(value or "" for name, value in attrs if name in {"src", "href"})

    Reader().feed(page)

    assert loaded == ["#figures"]
    for text in ("Best: candidate 1", "nodes in use by held-out part", "Best trial so far", "Not told apart"):
        assert text in page


def test_the_page_shows_names_as_text(example: tuple[Path, Result]):
    out, _ = example
    answer = run(out, *FEW, "--parameter", "*=today", "--parameter", STRATEGIES, "-o", "json")
    result = msgspec.json.decode(answer.stdout, type=Tuned)

    result.source = result.profile = HOSTILE
    page = page_of(result)

    assert HOSTILE not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_the_parameters_are_printed(tmp_path: Path):
    answer = run(tmp_path, "--show-parameters", "--parameter", "ImageLocality.weight=3..5")

    rows = {line.split()[0]: line.split()[1:] for line in answer.stdout.splitlines() if line.split()}
    assert rows["ImageLocality.weight"] == ["1", "3..5"]
    assert rows["PodTopologySpread.defaultingType"] == ["System"]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--parts", "4", "--held-out-parts", "4"], "--held-out-parts must be less than --parts"),
        (["--parameter", "Rubbish=1"], '--parameter Rubbish=1: there is no parameter "Rubbish"'),
        (["--profile", "other"], '--profile: there is no profile "other"; there are: custom-scheduler'),
        (["--gpu-nodes-only"], "--gpu-nodes-only needs --nodes"),
    ],
)
def test_nonsense_is_refused_before_anything_runs(tmp_path: Path, arguments: list[str], message: str):
    answer = run(tmp_path / "tuned", *arguments)

    assert answer.exit_code == 2
    assert message in answer.stderr
    assert not (tmp_path / "tuned").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "exactly one of --recording DIR, --trace FILE, --scenario FILE and --cluster FILE is needed"),
        (["--recording", "x", "--trace", "y"], "exactly one of --recording DIR"),
        (["--recording", str(EXAMPLE)], f"{EXAMPLE} is a scenario, expected a recording"),
        (["--scenario", "nowhere"], "nowhere: cannot be read: No such file or directory"),
        (["--trace", str(EXAMPLE)], f"{EXAMPLE} is a scenario, expected a trace"),
        (["--scenario", str(EXAMPLE), "--nodes", "x"], "--nodes needs --trace"),
        (["--cluster", "gone"], "gone: cannot be read"),
    ],
)
def test_exactly_one_workload_of_the_given_kind_is_needed(tmp_path: Path, arguments: list[str], message: str):
    answer = CliRunner().invoke(tune, [*arguments, "--out", str(tmp_path / "tuned")])

    assert answer.exit_code == 2
    assert message in answer.stderr


def test_an_interrupted_search_says_that_it_can_be_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "tuned", interrupted)

    answer = run(tmp_path / "tuned")

    assert answer.exit_code == 130
    assert answer.stderr.endswith(
        "the complete trials are kept, and the same command continues the search.\n"
    )
