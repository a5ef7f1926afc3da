"""The command line: parse, observe or load, diagnose, print. One thin module for each verb."""

from rbdagent.cli.main import cli, run

__all__ = ["cli", "run"]
