"""Expected errors, by their attributes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def raises(error: type[BaseException], **attributes: Any) -> Iterator[None]:
    """Expect an error whose attributes have these values."""
    with pytest.raises(error) as caught:
        yield
    assert {name: getattr(caught.value, name) for name in attributes} == attributes
