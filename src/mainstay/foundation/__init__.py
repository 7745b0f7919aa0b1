"""Below both halves; imports nothing of ours."""
