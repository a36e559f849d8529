"""Texts as guests write them."""

from __future__ import annotations


def null_terminated(content: bytes) -> tuple[str, ...]:
    """Split texts that end in NUL each; empty ones and a tail without an end are left out.

    Source:
        kube-scheduler-wasm-extension, scheduler/plugin/cstring.go.
    """
    whole = content.split(b"\0")[:-1]
    return tuple(text(part) for part in whole if part)


def text(content: bytes) -> str:
    """Read UTF-8; what is none is marked."""
    return content.decode(errors="replace")
