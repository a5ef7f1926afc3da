"""Observation of Ceph through librados and librbd. Always read-only."""
