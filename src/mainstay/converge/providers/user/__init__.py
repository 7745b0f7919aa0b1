"""Providers of the `user` type."""
