"""A directory of certificates is complete, or has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler.daemon.app.extender.certificates import client_authority_in, kept_in
from scheduler.errors import ConfigurationError
from tests.support.full_disks import no_room

if TYPE_CHECKING:
    from pathlib import Path


def test_a_full_file_system_leaves_no_partial_certificate(tmp_path: Path) -> None:
    with no_room():
        for make in (lambda: kept_in(tmp_path, "localhost"), lambda: client_authority_in(tmp_path)):
            with pytest.raises(
                ConfigurationError, match=r"a certificate cannot be kept in .*: File too large"
            ):
                make()
    assert list(tmp_path.iterdir()) == []

    assert kept_in(tmp_path, "localhost").authority.startswith(b"-----BEGIN CERTIFICATE-----")
    assert client_authority_in(tmp_path).exists()
