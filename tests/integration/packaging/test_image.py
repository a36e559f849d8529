"""The steps of the image, read from the Dockerfile and executed without Docker.

The first stage's COPY and RUN are done in a folder that only its owner may write, by an interpreter of this machine, with
the files of the source archive. Then the program runs as the Dockerfile's USER with no group beside its own, from a folder
it may not write, and with one for temporary files as the pod has. Without root the tests cannot become that user: there
the program runs as the current user, in folders without write permission. Not tested: the base image, its interpreter, and
that a Docker engine accepts the file.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import node_object, pod_object
from tests.support.image import (
    ARGUMENTS,
    GROUP,
    INSTRUCTIONS,
    IS_ROOT,
    PREFIX,
    ROOT,
    SECONDS,
    USER,
    arguments_of,
)
from tests.support.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.image import Installation

REFERENCE = re.compile(
    r"[a-z0-9._/-]+(:\w[\w.-]{0,127})?(@[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?"
)
"""The name of an image. Source: github.com/distribution/reference, regexp.go, without a registry's name."""


def test_both_stages_use_the_base_image_that_is_pinned_in_one_place():
    assert [arguments.split()[0] for arguments in arguments_of("FROM")] == ["${BASE}", "${BASE}"]
    assert re.fullmatch(r"python:3\.\d+-slim@(sha256:[0-9a-f]{64}|run-make-image)", ARGUMENTS["BASE"])


def test_a_base_without_a_digest_is_no_image_name():
    base = "python:3.13-slim"
    digest = f"sha256:{'1b' * 32}"
    assert [bool(REFERENCE.fullmatch(name)) for name in (base, f"{base}@{digest}")] == [True, True]
    assert not REFERENCE.fullmatch(f"{base}@run-make-image")
    assert not REFERENCE.fullmatch(ARGUMENTS["BASE"]) or digest[:7] in ARGUMENTS["BASE"]


def test_the_container_does_not_run_as_root_and_starts_the_daemon():
    assert (USER, GROUP) == (65532, 65532)
    assert INSTRUCTIONS[-4] == ("USER", "65532:65532")  # nothing after it could undo it
    assert arguments_of("ENTRYPOINT") == ['["custom-scheduler"]']
    assert arguments_of("CMD") == ['["run"]']


def test_every_download_is_checked_by_hash():
    for run in arguments_of("RUN"):
        for step in run.split("&&"):
            if re.search(r"\bpip (install|wheel|download)\b", step):
                # The package itself is built by what is installed already: pip would fetch that unchecked.
                assert "--require-hashes" in step or "--no-index" in step
                assert "pip wheel" not in step or "--no-build-isolation" in step


def test_the_build_tools_are_locked():
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    locked = (ROOT / "requirements-build.lock").read_text()

    for name, least in (requirement.split(">=") for requirement in asked):
        (version,) = re.findall(rf"^{name}==([\d.]+) ", locked, re.MULTILINE)
        assert [int(part) for part in version.split(".")] >= [int(part) for part in least.split(".")]


def test_the_build_uses_no_package_source_but_the_lock_file():
    _, last = (place for place, (word, _) in enumerate(INSTRUCTIONS) if word == "FROM")
    second_stage = INSTRUCTIONS[last:]

    assert [word for word, _ in second_stage if word in {"RUN", "ADD"}] == []
    assert [arguments for word, arguments in second_stage if word == "COPY"] == [
        f"--from=build {PREFIX} {PREFIX}"
    ]


def test_the_build_context_holds_only_the_copied_files():
    kept, dropped = set(), set()
    for line in (ROOT / ".dockerignore").read_text().split():
        (kept if line.startswith("!") else dropped).add(line.removeprefix("!"))
    copied = {
        name
        for arguments in arguments_of("COPY")
        for name in arguments.split()[:-1]
        if not arguments.startswith("--from")
    }

    assert "*" in dropped
    assert kept == copied


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder in which every user may write; pytest's own folders are closed to other users."""
    with tempfile.TemporaryDirectory(prefix="custom-scheduler-temporary-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


def test_the_user_of_the_image_can_write_none_of_its_files(installation: Installation):
    look = (
        "import os, sys, scheduler, plugins; folder = sys.argv[1];"
        "places = [os.path.join(at, each) for at, down, files in os.walk(folder) for each in ['.', *down, *files]];"
        "assert scheduler.__file__.startswith(folder) and plugins.__file__.startswith(folder), scheduler.__file__;"
        "print(os.getuid(), os.getgid(), os.getgroups(), [p for p in places if os.access(p, os.W_OK)"
        " and not os.path.islink(p)], len(places) > 1000)"
    )

    done = installation.run(installation.image / "bin" / "python", "-c", look, str(installation.image))

    # Where nobody could be changed into, it is who runs the tests.
    user, group, groups = (USER, GROUP, []) if IS_ROOT else (os.getuid(), os.getgid(), os.getgroups())
    assert (done.stdout.strip(), done.stderr) == (f"{user} {group} {groups} [] True", "")


@pytest.mark.parametrize("words", [("--help",), ("check",)], ids=" ".join)
def test_commands_run_where_only_temporary_files_can_be_written(
    installation: Installation, temporary: Path, words: tuple[str, ...]
):
    done = installation.run("custom-scheduler", *words, temporary=temporary)

    assert done.returncode == 0, done.stdout + done.stderr
    assert list(temporary.iterdir()) == []


def test_pods_are_placed_where_only_temporary_files_can_be_written(
    installation: Installation, temporary: Path
):
    asyncio.run(places_a_pod(installation, temporary))

    assert [each.name for each in temporary.iterdir()] == ["kubeconfig"]


async def places_a_pod(installation: Installation, temporary: Path) -> None:
    async with ApiServer(tls=True) as server:
        server.store.create("nodes", node_object("n1"))
        server.store.create("pods", pod_object("web"))
        kubeconfig = server.write_kubeconfig(temporary / "kubeconfig")
        kubeconfig.chmod(0o644)
        flags = ("--kubeconfig", kubeconfig, "--secure-port", "0")
        daemon = installation.start("custom-scheduler", "run", *flags, temporary=temporary)
        output = asyncio.create_task(asyncio.to_thread(daemon.communicate, timeout=SECONDS))
        await until(
            lambda: server.store.get("pods", "web", "default")["spec"].get("nodeName") or output.done()
        )
        daemon.terminate()
        said = await output

    assert daemon.returncode == 0, said
