"""The lab: real Ceph, a real Kubernetes control plane, two node VMs with real krbd and kubelet."""
