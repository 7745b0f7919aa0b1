"""Providers of the `file` type."""
