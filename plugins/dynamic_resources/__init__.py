"""Gives pods the devices that their claims ask for."""
