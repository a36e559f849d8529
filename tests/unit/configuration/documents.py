"""Configurations for tests, without repeating their first two lines."""

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
    """Parse a configuration from the text after apiVersion and kind."""
    return parse(HEAD + dedent(body))


def outcome(text: str) -> Configuration | ConfigurationError:
    """Parse a whole text; any other exception is a bug."""
    try:
        return parse(text)
    except ConfigurationError as error:
        return error


def messages_of(text: str) -> list[str]:
    """Return the errors of a whole text."""
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    return [str(error) for error in caught.value.errors]


def messages(body: str) -> list[str]:
    """Return the errors of a configuration, from the text after apiVersion and kind."""
    return messages_of(HEAD + dedent(body))
