"""Unmap: its conditions, its record, and the only module that writes to the node."""
