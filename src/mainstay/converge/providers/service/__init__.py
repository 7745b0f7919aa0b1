"""Providers of the `service` type."""
