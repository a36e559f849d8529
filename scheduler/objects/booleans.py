"""Booleans in the syntax of Go's flags."""

from __future__ import annotations

GO_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""Source: Go's strconv.ParseBool."""
