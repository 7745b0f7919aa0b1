"""Seals and opens secret values; where sealed ones are kept is the store's business."""
