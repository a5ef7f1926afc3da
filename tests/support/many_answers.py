"""Answers to many commands, from one process: ``python -m tests.support.many_answers``.

It reads a list of commands as JSON, and writes their exit codes and outputs. Each command alone
would import the product again.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import timedelta
from unittest.mock import patch

from rbdagent.cli import images
from rbdagent.cli.output import now_utc
from rbdagent.parse.times import later_by
from tests.support.cli_runner import ask


def _an_hour_later() -> str:
    return later_by(now_utc(), timedelta(hours=1))


def main() -> None:
    """Answer the commands of stdin; list images as an hour later, because new ones are not judged.

    The PV of an image that was created less than ten minutes ago may follow.
    """
    commands: list[list[str]] = json.load(sys.stdin)
    with patch.object(images, "now_utc", _an_hour_later):
        answers = [asdict(ask(*command)) for command in commands]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
