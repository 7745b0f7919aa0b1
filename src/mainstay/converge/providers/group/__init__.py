"""Providers of the `group` type."""
