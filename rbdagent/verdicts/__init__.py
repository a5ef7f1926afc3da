"""Verdicts: on each holder of a volume, and on the volume."""
