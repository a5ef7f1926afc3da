"""What would go wrong if manifests were applied: PVs, claims, classes, snapshots of a restore."""
