"""The property engine: a schema is parsed once into closures, and each request is decided by them."""
