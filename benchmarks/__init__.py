"""Side by side with the bare floor and with peers; prints ratios. Never part of the test suite."""
