"""Schema validators: rules between properties, applied to the merged result."""
