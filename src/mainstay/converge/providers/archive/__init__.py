"""Providers of the `archive` type."""
