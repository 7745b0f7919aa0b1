"""Manifest text to typed resources. Pure: callers pass in everything that is read from the host."""
