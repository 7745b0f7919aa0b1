# Thin on purpose: each target is one line, the work is in scripts/.
.PHONY: setup demo test check bench

setup:
	@scripts/setup

demo: setup
	@scripts/demo

test: setup
	@scripts/test

check: setup
	@scripts/check

bench: setup
	@scripts/bench
