"""Plugins that rank nodes by what is measured of them, NetworkTraffic and NodeLoad, and where the numbers come from."""
