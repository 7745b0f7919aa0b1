"""Providers of the `line` type."""
