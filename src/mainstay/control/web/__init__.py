"""The pages: server-rendered HTML over the same operations and the same access table as the API."""
