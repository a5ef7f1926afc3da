"""The lifecycle of a volume, and everything in a cluster that is stuck."""
