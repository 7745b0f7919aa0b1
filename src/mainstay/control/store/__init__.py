"""Reads and writes records: one file per noun; `engine/` holds the two databases. It decides nothing."""
