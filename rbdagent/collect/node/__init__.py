"""Observation of the node: sysfs, /proc, kubelet's directories and logs."""
