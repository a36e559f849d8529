"""Alibaba's trace of a GPU cluster (cluster-trace-gpu-v2023, "openb"): a table of nodes and a table of pods."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.errors import SchedulerError
from scheduler.objects.decode import decode_node, decode_pod
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.simulation.workload import GPU_COUNT, GPU_MILLI, GPU_MODEL, Arrival, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PODS_PER_NODE = "1000"
_MIB = 1024 * 1024


class TraceError(SchedulerError):
    """A table cannot be read."""


def read_trace(nodes: Path, pods: Path, *, gpu_nodes_only: bool = False) -> Workload:
    """Read a trace; tables may be compressed by gzip.

    Args:
        nodes: table with the columns sn, cpu_milli, memory_mib, gpu and model.
        pods: table with name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, creation_time, deletion_time and
            scheduled_time. A pod runs as long as it did after it was scheduled.
        gpu_nodes_only: whether to ignore nodes without GPUs, as the paper of the trace does.

    Raises:
        TraceError: the file, line and field that cannot be read.
    """
    cluster = ClusterFile(
        nodes=[
            decode_node(msgspec.json.encode(node))
            for node in [row.node() for row in _rows(nodes, "sn")]
            if not gpu_nodes_only or node["status"]["allocatable"][GPU_COUNT] != "0"
        ]
    )
    arrivals = sorted(
        (row.arrival() for row in _rows(pods, "name")), key=lambda each: (each.at, each.pod.key)
    )
    return Workload(cluster, arrivals)


_GZIP: Final = b"\x1f\x8b"
_HEAD_BYTES: Final = 4096


def is_pod_table(path: Path) -> bool:
    """Return whether a file is the table of a trace's pods, by its head."""
    try:
        with path.open("rb") as file:
            is_compressed = file.read(len(_GZIP)) == _GZIP
        with gzip.open(path) if is_compressed else path.open("rb") as file:
            head = file.read(_HEAD_BYTES).partition(b"\n")[0]
    except (OSError, EOFError, zlib.error):
        return False
    return {b"name", b"cpu_milli"} <= set(head.strip().split(b","))


class _Row:
    """One line of a table.

    Args:
        where: file and line.
    """

    def __init__(self, where: str, cells: dict[str, str]) -> None:
        self._where, self._cells = where, cells

    def node(self) -> dict[str, Any]:
        name, gpus = self._text("sn"), self._amount("gpu")
        offered = {
            "cpu": f"{self._amount('cpu_milli')}m",
            "memory": str(self._amount("memory_mib") * _MIB),
            "pods": _PODS_PER_NODE,
            GPU_COUNT: str(gpus),
        }
        labels = {"kubernetes.io/hostname": name, **({GPU_MODEL: self._text("model")} if gpus else {})}
        metadata = {"name": name, "uid": f"uid-of-{name}", "labels": labels}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "spec": {},
            "status": {"allocatable": offered, "capacity": offered},
        }

    def arrival(self) -> Arrival:
        name, gpus = self._text("name"), self._amount("num_gpu")
        created, ended = self._number("creation_time"), self._number("deletion_time", created_else=True)
        began = self._number("scheduled_time", created_else=True)
        annotations = {}
        if gpus:
            annotations = {GPU_MILLI: str(min(self._amount("gpu_milli"), 1000)), GPU_COUNT: str(gpus)}
            if models := self._cells.get("gpu_spec", ""):
                annotations[GPU_MODEL] = models
        asked = {
            "cpu": f"{self._amount('cpu_milli')}m",
            "memory": str(self._amount("memory_mib") * _MIB),
        }
        container = {"name": "main", "image": "pause", "resources": {"requests": asked}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-of-{name}",
                "annotations": annotations,
            },
            "spec": {"containers": [container], "schedulerName": "custom-scheduler"},
            "status": {"phase": "Pending"},
        }
        return Arrival(decode_pod(msgspec.json.encode(pod)), float(created), float(max(ended - began, 1)))

    def _text(self, column: str) -> str:
        text = self._cells.get(column) or ""
        if not text:
            raise TraceError(f"{self._where}: {column} is missing")
        return text

    def _amount(self, column: str) -> int:
        number = self._number(column)
        if number < 0:
            raise TraceError(f"{self._where}: {column} must not be negative, was {number}")
        return number

    def _number(self, column: str, *, created_else: bool = False) -> int:
        if created_else and not self._cells.get(column):
            column = "creation_time"
        text = self._text(column)
        try:
            return int(float(text))
        except (ValueError, OverflowError) as error:
            raise TraceError(f"{self._where}: {column} must be a number, was {text!r:.80}") from error


def _rows(path: Path, name: str) -> Iterator[_Row]:
    """Yield the lines of a table; `name` is the column whose values are unique."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error
    table = csv.DictReader(io.StringIO(text, newline=None))
    places: dict[str, int] = {}  # name -> its line
    try:
        for cells in table:
            line, named = table.line_num, cells.get(name) or ""
            if named and places.setdefault(named, line) != line:
                raise TraceError(f"{path}:{line}: {name} {named!r:.80} is already in line {places[named]}")
            yield _Row(f"{path}:{line}", cells)
    except csv.Error as error:
        raise TraceError(f"{path}:{table.reader.line_num}: {error}") from error
    if not table.fieldnames:
        raise TraceError(f"{path}: is empty")
