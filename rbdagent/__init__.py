"""Who holds this Ceph RBD volume, should they, and what do I do now?"""

__version__ = "0.1.0"
