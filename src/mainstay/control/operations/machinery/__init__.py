"""What operations share: the unit of work, views, diffs, bounds, refusals."""
