"""Decides; no I/O, no clock, no randomness: what a service type may demand of its properties, and how a service may move."""
