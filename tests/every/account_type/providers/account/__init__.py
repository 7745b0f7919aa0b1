"""Providers of the account type of the tests."""
