"""Pushes a manifest to many hosts over ssh. `receiver.py` and `first_stage.py` run on the host, all else runs here."""
