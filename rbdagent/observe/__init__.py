"""Looks at the node, Ceph and Kubernetes: I/O only, no judgement."""
