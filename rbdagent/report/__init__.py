"""Output for people and for programs, and snapshots."""
