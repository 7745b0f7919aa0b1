"""Shared by operations: the unit of work, views, diffs, bounds, refusals."""
