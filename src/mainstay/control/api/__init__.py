"""Speaks HTTP: the only folder that knows status codes. What an endpoint does is an operation; this finds and calls it."""
