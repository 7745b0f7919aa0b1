"""Providers of the `exec` type."""
