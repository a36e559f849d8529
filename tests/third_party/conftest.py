"""The package's own tests run where the package is installed; see test_installed_package."""

collect_ignore = ["quiet_racks"]
