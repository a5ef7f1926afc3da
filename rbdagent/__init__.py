"""Show what holds a Ceph RBD volume, whether it should, and what to do next."""

__version__ = "0.1.0"
