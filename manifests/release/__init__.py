"""Builds and checks what a release has: `make release`. A release is for those who install from `manifests/`."""
