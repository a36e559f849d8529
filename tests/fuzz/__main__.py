"""`make fuzz`: made-up objects without end, guided by which code they reach; ARGS are libFuzzer's, as -runs=100000.

Needs atheris, which `make fuzz` installs.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tests.fuzz.objects import Scene


def main() -> None:
    """Run until something is found, or as long as the arguments say."""
    import atheris  # no dependency: only this command needs it

    with atheris.instrument_imports(
        include=["scheduler.objects", "scheduler.kube.client.wire", "scheduler.snapshot", "plugins"]
    ):
        from scheduler.objects import protobuf
        from tests.fuzz.objects import Scene, try_json, try_protobuf
        from tests.support.builders import node_object, pod_object

    logging.disable(logging.CRITICAL)
    scenes: list[Scene] = [Scene()]

    def one(data: bytes) -> None:
        (try_protobuf if data[:1] == b"p" else try_json)(scenes[0], data[1:])

    def changed(data: bytes, most: int, seed: int) -> bytes:
        """Change a whole object, not what came of changing nothing."""
        return atheris.Mutate(data or seeds[seed % len(seeds)], most)  # type: ignore[no-any-return]

    seeds = [
        *(b"j" + msgspec.json.encode(made) for made in (pod_object("evil", cpu="1"), node_object("evil"))),
        b"p" + protobuf.encode("v1", "Pod", pod_object("evil", cpu="1")),
    ]
    atheris.Setup(sys.argv, one, custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
