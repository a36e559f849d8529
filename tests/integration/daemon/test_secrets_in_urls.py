"""Secrets in URLs of the configuration, the kubeconfig or the environment are shown nowhere; as a process."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import zstandard

from tests.integration.configuration.test_reload_processes import end, running, serving
from tests.support.builders import pod_object
from tests.support.processes import until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SECRET = "hunter2"
URL = "http://{name}-%s:%s@127.0.0.1:1/{name}?token=%s#%s" % ((SECRET,) * 4)

STREAM = "/board/data/stream"
HEAD = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
"""
EXTENDERS = [
    {"urlPrefix": URL.format(name="ignored"), "filterVerb": "f", "prioritizeVerb": "p", "weight": 1, "ignorable": True},
    {"urlPrefix": URL.format(name="remote").replace("127.0.0.1:1", "extender.invalid"), "filterVerb": "f",
     "ignorable": True},
    {"urlPrefix": URL.format(name="needed"), "filterVerb": "f", "bindVerb": "b",
     "managedResources": [{"name": "example.com/needed", "ignoredByScheduler": True}]},
]  # fmt: skip
LOGGING = """\
import logging
from scheduler.framework import FilterPlugin

class Logging(FilterPlugin):
    name = "Logging"
    api_version = 1

    def filter_node(self, state, pod, node):
        if pod.name == "fails":
            raise ValueError("{url}")
"""
GUEST = [{"name": "Guest", "args": {"guestURL": URL.format(name="guest")}}]
WRONG = {
    "a guest that is not there": {
        "profiles": [{"plugins": {"filter": {"enabled": [{"name": "Guest"}]}}, "pluginConfig": GUEST}]
    },
    "a guest that is not there, named by its URL": {
        "profiles": [{"plugins": {"filter": {"enabled": [{"name": URL.format(name="guest").partition("?")[0] + ".wasm"}]}}}]
    },
    "a Prometheus and extenders with passwords": {
        "profiles": [
            {
                "plugins": {"multiPoint": {"enabled": [{"name": "NetworkTraffic"}]}},
                "pluginConfig": [{"name": "NetworkTraffic", "args": {"ip": URL.format(name="prometheus")}}],
            }
        ],
        "extenders": [
            {"urlPrefix": f"http://user:{SECRET}/{SECRET}@127.0.0.1:1"},
            {"urlPrefix": URL.format(name="x").replace("http", "ftp")},
        ],
    },
}  # fmt: skip


def configuration(**more: Any) -> str:
    return HEAD + "".join(f"{name}: {json.dumps(value)}\n" for name, value in more.items())


def recorded(folder: Path) -> bytes:
    """Everything in the files of a recording."""
    found = b""
    for path in folder.glob("*.rec"):
        head, _, packed = path.read_bytes().partition(b"\n")
        found += head + zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    return found


def test_secrets_in_urls_appear_in_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://proxy:{SECRET}@127.0.0.1:1")
    config = tmp_path / "config.yaml"
    profiles = [{"plugins": {"filter": {"enabled": [{"name": "logging.py"}]}}}]
    config.write_text(configuration(extenders=EXTENDERS, profiles=profiles))
    (tmp_path / "logging.py").write_text(LOGGING.format(url=URL.format(name="raised")))
    flags = ("--config", str(config), "--record", str(tmp_path / "recording"), "--board", "--v", "4")

    async def scenario() -> dict[str, str]:
        shown = {}
        async with serving(tmp_path) as (kubeconfig, it):
            kubeconfig.write_text(kubeconfig.read_text().replace("http://", f"http://user:{SECRET}@"))
            async with running(kubeconfig, tmp_path / "log", *flags) as run:
                assert await it.place("web")
                it.store.create("pods", pod_object("fails"))
                needs = pod_object("needs")
                needs["spec"]["containers"][0]["resources"] = {"limits": {"example.com/needed": "1"}}
                it.store.create("pods", needs)
                await until(lambda: {"default/fails", "default/needs"} <= {
                    line.get("pod") for line in run.said("Error scheduling pod; retrying")
                })  # fmt: skip
                for problem, wrong in WRONG.items():
                    known = len(run.said("Configuration rejected; the one before stays active"))
                    config.write_text(configuration(**wrong) + f"# {problem}\n")
                    await until(
                        lambda known=known: (
                            len(run.said("Configuration rejected; the one before stays active")) > known
                        )
                    )
                paths = [path for path in json.loads(await run.page("/"))["paths"] if "{" not in path]
                paths.remove(STREAM)  # which does not end
                paths += [
                    "/debug/explain/default/needs",
                    "/debug/explain/default/web",
                    "/debug/explain/default/fails",
                ]
                paths += ["/board/data/pods/default/needs", "/board/data/waiting/unschedulable"]
                for path in paths:
                    shown[f"GET {path}"] = await run.page(path)
                shown[f"GET {STREAM}"] = await run.beginning_of(STREAM)
                shown["the API server"] = json.dumps(
                    [*it.store.list("events.events.k8s.io"), *it.store.list("pods")]
                )
                assert await end(run) == 0
        shown["the log"] = (tmp_path / "log").read_text()
        shown["the recording"] = recorded(tmp_path / "recording").decode("latin-1")
        return shown

    shown = asyncio.run(scenario())
    for where, what in (
        ("GET /configz", "http://xxxxx@127.0.0.1:1/ignored?token=xxxxx#xxxxx"),
        ("GET /metrics", 'extender="http://xxxxx@127.0.0.1:1/ignored?token=xxxxx#xxxxx"'),
        ("GET /debug/explain/default/needs", "http://xxxxx@127.0.0.1:1/needed"),
        ("the API server", "http://xxxxx@127.0.0.1:1/needed"),
        ("the log", "http://xxxxx@127.0.0.1:1/raised"),
        ("the log", "http://xxxxx@127.0.0.1:1/guest"),
        ("the recording", "http://xxxxx@127.0.0.1:1/ignored"),
    ):
        assert what in shown[where], where
    assert [where for where, text in shown.items() if SECRET in text] == []
