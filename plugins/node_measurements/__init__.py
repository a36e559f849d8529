"""Plugins that rank nodes by measurements, NetworkTraffic and NodeLoad, and the sources of the numbers."""
