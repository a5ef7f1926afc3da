"""The lab: real Ceph, a real Kubernetes control plane, two nodes with real krbd and kubelet."""
