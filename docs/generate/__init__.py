"""The parts of the documentation site that are made when it is built: reference pages, and pages of linked files."""
