"""The command line: parse, look or load, judge, print. Thin on purpose: a module a verb."""

from rbdagent.cli.program import cli, run

__all__ = ["cli", "run"]
