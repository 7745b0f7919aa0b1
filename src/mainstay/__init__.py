"""Mainstay: bring hosts to what a manifest says, and offer services on them."""

__version__ = "0.1.0"
