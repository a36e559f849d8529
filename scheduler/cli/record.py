"""The option of `run` for the recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from scheduler.daemon.recording.limits import RecordingLimits
from scheduler.objects.quantity import parse_quantity

if TYPE_CHECKING:
    from typing import Any

_SMALLEST: Final = 2**20


class _RoomType(click.ParamType[RecordingLimits]):
    name = "DIR[,size=1Gi,hours=24]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> RecordingLimits:
        if isinstance(value, RecordingLimits):
            return value
        folder, *limits = str(value).split(",")
        said: dict[str, float] = {}
        for limit in limits:
            name, equals, text = limit.partition("=")
            if name not in {"size", "hours"} or not equals:
                self.fail(f"{limit!r} must be size=SIZE or hours=NUMBER", param, ctx)
            try:
                said[name] = parse_quantity(text).value() if name == "size" else float(text)
            except ValueError:
                self.fail(f"{limit!r}: {text!r} is not a number", param, ctx)
        if not folder:
            self.fail("a directory is needed", param, ctx)
        room = RecordingLimits(Path(folder))
        if "size" in said:
            if said["size"] < _SMALLEST:
                self.fail("size: at least 1Mi is needed", param, ctx)
            room = RecordingLimits(room.folder, int(said["size"]), room.max_seconds)
        if "hours" in said:
            if not said["hours"] > 0:
                self.fail("hours: more than 0 is needed", param, ctx)
            room = RecordingLimits(room.folder, room.max_bytes, said["hours"] * 3600.0)
        return room


ROOM: Final = _RoomType()
