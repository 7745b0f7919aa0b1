"""Drawings of the pages, one file each: pure functions from values to SVG as `Markup`."""
