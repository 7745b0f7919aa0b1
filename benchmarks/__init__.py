"""Benchmarks: print ratios to the bare floor and to peers. Tests do not judge speed."""
