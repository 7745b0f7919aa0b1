"""Formats results for a terminal: tables, runs, reports."""
