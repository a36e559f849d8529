"""The version as a constant: reading the installed package's metadata takes longer than most of the start."""

VERSION = "0.2.0"
