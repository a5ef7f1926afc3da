"""The error of a release."""


class ReleaseError(Exception):
    """A release is refused or failed; ``str()`` names the reason, and what to do."""
