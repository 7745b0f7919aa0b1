"""Seals and opens secret values. The store keeps the sealed values."""
