"""The HTTP API: the only folder that knows status codes. Endpoints parse, call an operation and answer."""
