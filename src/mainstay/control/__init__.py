"""Half two: which services exist and what must happen to them."""
