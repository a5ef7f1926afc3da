"""Answers for people and programs, made of what was judged; and snapshots."""
