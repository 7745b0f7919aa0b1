"""Decisions about properties, lifecycles, jobs and blueprints. Pure: no I/O, no clock, no randomness."""
