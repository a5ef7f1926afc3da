"""Observation of the node, Ceph and Kubernetes: I/O only, without rules and verdicts."""
