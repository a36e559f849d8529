"""The profile and the table of arguments in docs/wasm-guests.md are correct."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from scheduler.configuration.load import parse
from scheduler.extensions.wasm.guest_source import GuestArgs
from scheduler.extensions.wasm.library import GuestLibrary, guest_urls
from tests.unit.extensions.wasm.test_library import built, filters, folder

__all__ = ["folder"]

GUIDE = (Path(__file__).parents[4] / "docs" / "wasm-guests.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)


def test_the_profile_of_the_guide_names_one_guest() -> None:
    configuration = parse(BLOCKS[0], "the guide")

    assert list(guest_urls(configuration)) == ["https://example.com/guests/nodenumber.wasm"]
    assert GuestLibrary().means("NodeNumber", configuration.settings.profiles[0].plugin_config[0].args)


def test_the_profile_of_the_guide_runs_with_an_existing_guest(folder: Path) -> None:
    text = BLOCKS[0].replace("https://example.com/guests/nodenumber.wasm", "even.wasm")
    profile = "- " + yaml.safe_dump(yaml.safe_load(text)["profiles"][0]).replace("\n", "\n  ")

    assert filters(built(folder, profile)["custom-scheduler"])[-1] == "NodeNumber"


def test_the_table_of_the_guide_has_all_arguments() -> None:
    assert re.findall(r"^\| `(\w+)` \|", GUIDE, re.MULTILINE) == list(GuestArgs.__struct_encode_fields__)
