"""Validators: rules about one value, each compiled from a checked configuration into one closure."""
