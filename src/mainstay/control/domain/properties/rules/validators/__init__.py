"""Is one value right? Each takes a checked configuration and becomes one closure."""
