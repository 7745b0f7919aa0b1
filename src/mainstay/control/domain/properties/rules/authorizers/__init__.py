"""Authorizers: which actor may set a value, and in which states. They apply only to values in a request."""
