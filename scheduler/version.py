"""Which version this is: to ask what is installed takes longer than most of the start."""

VERSION = "0.1.0"
