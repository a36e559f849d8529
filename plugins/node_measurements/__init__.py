"""The plugins that score nodes by measurements, and the sources of these."""
