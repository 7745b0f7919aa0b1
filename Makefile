# Thin on purpose: each target is one line, the work is in scripts/.
.PHONY: setup demo test test-all torture check bench package

setup:
	@scripts/setup

demo: setup
	@scripts/demo

test: setup
	@scripts/test

test-all: setup
	@scripts/test-all

torture: setup
	@scripts/torture

check: setup
	@scripts/check

bench: setup
	@scripts/bench

package: setup
	@scripts/package
