"""Do the properties agree with each other? They see the merged result."""
