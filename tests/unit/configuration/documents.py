"""Configurations for tests, without their first two lines again and again."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from scheduler.configuration.load import parse
from scheduler.errors import ConfigurationError

if TYPE_CHECKING:
    from scheduler.configuration.load import Configuration

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def parsed(body: str) -> Configuration:
    """Read a configuration from what follows apiVersion and kind."""
    return parse(HEAD + dedent(body))


def outcome(text: str) -> Configuration | ConfigurationError:
    """What becomes of a whole text; anything but these two is a fault of ours."""
    try:
        return parse(text)
    except ConfigurationError as error:
        return error


def messages_of(text: str) -> list[str]:
    """What is wrong with a whole text."""
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    return [str(error) for error in caught.value.errors]


def messages(body: str) -> list[str]:
    """What is wrong with a configuration, from what follows apiVersion and kind."""
    return messages_of(HEAD + dedent(body))
