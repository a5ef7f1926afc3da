"""What is printed, in which form, and with which exit code."""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from rbdagent.cli.flags import SEVERITIES
from rbdagent.errors import RbdagentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rbdagent.model import Diagnosis, Moment


_FINDINGS: Final = 3
_WATCH_S: Final = 5.0


def data_text(data: dict[str, Any], output: str) -> str:
    """Give data as JSON or YAML."""
    if output == "json":
        import msgspec

        return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"
    import yaml

    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)


def exit_code(diagnoses: Sequence[Diagnosis], fail_on: str) -> int:
    """Give 3 for findings, 1 for "undetermined": no script may read that as fine."""
    from rbdagent.model import Verdict

    least = SEVERITIES.index(fail_on)
    serious = any(
        SEVERITIES.index(str(finding.severity)) >= least
        for diagnosis in diagnoses
        for finding in diagnosis.findings
    )
    if serious:
        return _FINDINGS
    return int(any(each.verdict is Verdict.UNDETERMINED for each in diagnoses))


def repeat(once: Callable[[], tuple[str, int]], *, watch: bool) -> int:
    """Answer once; with --watch again and again, printing an answer that differs from the last."""
    text, code = once()
    say(text)
    if watch:
        gc.enable()
    while watch:
        time.sleep(_WATCH_S)
        again, code = once()
        if _timeless(again) != _timeless(text):
            say(f"\n--- {now_utc()}\n{again}")
        text = again
    return code


def _timeless(text: str) -> str:
    """Give an answer without the moments in it, which differ at every look."""
    import re

    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "", text)


def has_colour() -> bool:
    """Tell whether the answer goes to a terminal that may show colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def say(text: str) -> None:
    """Print to stdout.

    Raises:
        RbdagentError: it cannot be written.
        BrokenPipeError: whoever read has gone.
    """
    try:
        click.echo(text, nl=False, color=has_colour())
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RbdagentError(f"cannot write the answer: {error.strerror}") from error


def now_utc() -> str:
    """Give the time as ISO 8601 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def moment() -> Moment:
    """Give the node's time: the wall clock's is shown, seconds since boot are reckoned with."""
    from rbdagent.model import Moment

    return Moment(at=now_utc(), uptime_s=time.clock_gettime(time.CLOCK_BOOTTIME))
