# Thin on purpose: each target is one line, the work is in scripts/.
.PHONY: setup demo test torture check bench package

setup:
	@scripts/setup

demo: setup
	@scripts/demo

test: setup
	@scripts/test

torture: setup
	@scripts/torture

check: setup
	@scripts/check

bench: setup
	@scripts/bench

package: setup
	@scripts/package
