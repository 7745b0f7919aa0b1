"""Remembers: two databases behind one door, one file per noun, numbered migrations. It decides nothing."""
