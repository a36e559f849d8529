"""The image, built from the Dockerfile by podman, which needs no daemon, and run as the Deployment runs it.

No registry is used: the base image is built here from Debian's packages, so its Python is Debian's and not the one of the
Dockerfile's base. It needs root, because a base image has files owned by root.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from scheduler.tools.simulator.server import ApiServer
from scheduler.version import VERSION
from tests.integration.packaging.test_supply import NAME
from tests.support.binaries import needed_binary
from tests.support.builders import node_object, pod_object
from tests.support.manifests import MANIFESTS, ROOT
from tests.support.ports import free_port
from tests.support.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator

BASE, IMAGE = "localhost/python-of-debian:test", "localhost/custom-scheduler:test"
PACKAGES = "python-is-python3,python3-venv,ca-certificates"
REACHING_AN_INDEX = [path for path in ("/etc/pip.conf", "/etc/ssl/certs") if Path(path).exists()]
"""How pip reaches its index on this machine; mounted while the image is built, and no part of it."""
SECONDS = 600


class Podman:
    """podman with a store of its own.

    Args:
        folder: where the store is.
    """

    def __init__(self, folder: Path) -> None:
        needed_binary("runc", "Debian's package runc", in_ci=False)
        self._command = [
            needed_binary("podman", "Debian's package podman", in_ci=False),
            f"--root={folder / 'store'}", f"--runroot={folder / 'run'}", "--runtime=runc", "--cgroup-manager=cgroupfs",
        ]  # fmt: skip

    def __call__(self, *words: str) -> str:
        """Run a command; return what it printed."""
        done = subprocess.run(
            [*self._command, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        assert done.returncode == 0, (words, done.stdout + done.stderr)
        return done.stdout

    def as_deployed(self, *words: str, network: str = "none", more: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the words that run the image as the Deployment's security context and volumes have it."""
        container = deployed()
        limit = container["resources"]["limits"]["memory"].removesuffix("i").lower()
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        return (
            "run", "--rm", "--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp:size=16m,mode=1777", f"--memory={limit}",
            "--cap-drop=all", "--security-opt=no-new-privileges", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000",
            f"--network={network}", *more, IMAGE, *words,
        )  # fmt: skip


def deployed() -> dict[str, object]:
    deployment = yaml.safe_load((MANIFESTS / "base" / "deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(container)


@contextmanager
def podman() -> Iterator[Podman]:
    with tempfile.TemporaryDirectory(prefix="custom-scheduler-podman-") as name:
        run = Podman(Path(name))
        try:
            yield run
        finally:
            run("rm", "--all", "--force")
            run("rmi", "--all", "--force")


def build(run: Podman, folder: Path) -> None:
    """Make a base image, and the image on it."""
    make = needed_binary("mmdebstrap", "Debian's package mmdebstrap", in_ci=False)
    archive = folder / "base.tar"
    release = re.findall(r"^VERSION_CODENAME=(.+)$", Path("/etc/os-release").read_text(), re.MULTILINE)
    # Of the kind `apt`, as every image of Debian has apt and what that takes.
    options = ["--quiet", "--variant=apt", f"--include={PACKAGES}"]
    subprocess.run([make, *options, *release, archive], check=True, capture_output=True, timeout=SECONDS)
    run("import", "--quiet", str(archive), BASE)
    archive.unlink()
    mounts = [f"--volume={path}:{path}:ro" for path in REACHING_AN_INDEX]
    arguments = [f"--build-arg=BASE={BASE}", "--isolation=chroot", "--network=host"]
    run("build", "--quiet", *arguments, *mounts, f"--tag={IMAGE}", ".")


def test_the_image_is_built_and_runs_as_deployed(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may make a base image")
    with podman() as run:
        build(run, tmp_path)
        says_what_it_is(run)
        has_what_is_listed_and_nothing_else(run)
        is_nobody_who_may_write_nothing_but_temporary_files(run)
        assert "Usage: custom-scheduler" in run(*run.as_deployed("--help"))
        assert "valid, profiles custom-scheduler" in run(*run.as_deployed("check"))
        asyncio.run(places_pods_and_ends_when_it_is_told(run, tmp_path))


def says_what_it_is(run: Podman) -> None:
    ((image,),) = [json.loads(run("inspect", IMAGE))]
    config = image["Config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] + config["Cmd"] == ["custom-scheduler", "run"]
    assert config["Labels"]["org.opencontainers.image.base.name"] == BASE


def has_what_is_listed_and_nothing_else(run: Podman) -> None:
    """What `make sbom` lists, the package itself, and no pip."""
    look = "from importlib.metadata import distributions as all; print(*(f'{d.name} {d.version}' for d in all()), sep='\\n')"
    said = run(*run.as_deployed("-Ic", look, more=("--entrypoint=/opt/custom-scheduler/bin/python",)))
    found = {(name.lower().replace("_", "-"), version) for name, version in map(str.split, said.splitlines())}
    listed = set(NAME.findall((ROOT / "requirements.lock").read_text()))
    assert found - listed == {("custom-scheduler", VERSION)}
    assert {name for name, _ in listed} <= {name for name, _ in found}


def is_nobody_who_may_write_nothing_but_temporary_files(run: Podman) -> None:
    look = (
        "import os; places = [os.path.join(at, each) for top in ['/opt', '/etc', '/usr', '/var', '/tmp']"
        " for at, down, files in os.walk(top) for each in ['.', *down, *files]];"
        "print(os.getuid(), os.getgid(), [p for p in places if os.access(p, os.W_OK) and not os.path.islink(p)]);"
        "print(*[line for line in open('/proc/self/status') if line.startswith(('CapBnd', 'CapEff', 'NoNewPrivs'))])"
    )
    said = run(*run.as_deployed("-c", look, more=("--entrypoint=python",))).split("\n", 1)
    assert said[0] == "65532 65532 ['/tmp/.']"
    assert said[1].split() == ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]


async def places_pods_and_ends_when_it_is_told(run: Podman, folder: Path) -> None:
    """With the Deployment's arguments, but for the ConfigMap."""
    async with ApiServer(tls=True) as server:
        server.store.create("nodes", node_object("n1"))
        server.store.create("pods", pod_object("web"))
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
        kubeconfig.chmod(0o644)
        arguments = [each for each in deployed()["args"] if not each.startswith("--config-map")]  # type: ignore[attr-defined]
        words = run.as_deployed(
            *arguments, "--kubeconfig=/kubeconfig", f"--secure-port={free_port()}", "--bind-address=127.0.0.1",
            network="host", more=("--name=it", f"--volume={kubeconfig}:/kubeconfig:ro"),
        )  # fmt: skip
        container = asyncio.create_task(asyncio.to_thread(run, *words))
        await until(
            lambda: server.store.get("pods", "web", "default")["spec"].get("nodeName") or container.done()
        )
        assert not container.done(), container.result()
        await asyncio.to_thread(run, "stop", "--time=20", "it")
        await container  # it ended with 0, or `run` would say so
