"""The lifecycle engine: which states a service can be in, and how each action moves it."""
