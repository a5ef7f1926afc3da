"""The files of a release, from one commit: ``./dev release``."""
