"""Authoring blueprints: scaffold, check, bundle, test on a throw-away host. May import the control plane."""
