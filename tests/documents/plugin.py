"""What the kubectl plugin knows of rbdagent's commands: verbs, flags and their values.

The program in git contains these lines, because its shell needs them to read its arguments. What
only its answers need, the release appends (release/plugin.py).
"""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import click

from rbdagent.cli import cli
from rbdagent.report.schema import KINDS
from release.plugin import PROGRAM, VERBS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OF_KUBECTL: Final = frozenset({"--context", "--kubeconfig"})
"""Flags that the plugin passes to kubectl: the verb runs in a pod, which has its own access."""
OF_THE_POD: Final = frozenset({
    "--ceph-conf", "--ceph-id", "--ceph-keyring", "--config", "--freeze-file", "--host-root",
    "--kubelet-root", "--node-name", "--procfs", "--state-dir", "--sysfs",
})  # fmt: skip
"""Flags that describe the machine of the verb, which the chart does: completion omits them."""

_BEGIN: Final = "# Begin of the lines that ./dev docs writes from the commands of rbdagent.\n"
_END: Final = "# End of the lines that ./dev docs writes.\n"
_AMBIGUOUS: Final = "v"
"""The plugin itself decides whether -v is kubectl's, with a number, or the verb's."""
_WIDTH: Final = 96


def as_generated(program: str) -> str:
    """Return the text of the plugin with what it knows of the current commands."""
    before, begin, rest = program.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert begin, "the plugin has no place for these lines"
    assert end, "the plugin has no end of these lines"
    return before + begin + "".join(_lines()) + end + after


def options_of(verb: str) -> list[click.Option]:
    """Return the options of a verb, without --help."""
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None, verb
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def write() -> None:
    """Write these lines into the plugin."""
    PROGRAM.write_text(as_generated(PROGRAM.read_text()))


def _lines() -> Iterator[str]:
    yield _variable("VERBS", VERBS)
    yield "# The kinds of machine output, for the completion of schema.\n"
    yield _variable("KINDS", KINDS)
    yield "# The flags with a value.\n"
    yield _variable("VERB_VALUES", sorted(_with_value()))
    yield "\n# Print the long form of a verb's flag with the letter $1.\n"
    yield from _function("long_flag_of_verb", "$1", _letters(), default="printf '%s\\n' \"-$1\"")
    yield "\n# Print the flags of the verb $1, for completion.\n"
    yield from _function("flags_of", "$1", _flags())
    yield "\n# Print the values that the flag $2 of the verb $1 can have, for completion.\n"
    yield from _function("choices_of", '"$1 $2"', _choices())


def _variable(name: str, words: Iterable[str]) -> str:
    return _wrapped(f'{name}="{" ".join(words)}"')


def _wrapped(command: str) -> str:
    """Return a command of the shell in lines.

    In double quotes too, a backslash joins lines; in single quotes, it does not.
    """
    unbroken = re.sub(r"'[^']*'", lambda quoted: quoted[0].replace(" ", "\0"), command)
    lines = textwrap.wrap(unbroken, _WIDTH, break_on_hyphens=False, break_long_words=False)
    return " \\\n".join(lines).replace("\0", " ") + "\n"


def _function(
    name: str, word: str, rows: Iterable[tuple[str, Iterable[str]]], *, default: str = ""
) -> Iterator[str]:
    """Yield a function of the shell that prints the words of the row whose pattern matches."""
    yield f"{name}() {{\n  case {word} in\n"
    for pattern, words in rows:
        yield _wrapped(f'    {pattern}) echo "{" ".join(words)}" ;;')
    if default:
        yield f"    *) {default} ;;\n"
    yield "  esac\n}\n"


def _long(option: click.Option) -> list[str]:
    return [name for name in option.opts if name.startswith("--")]


def _with_value() -> set[str]:
    """Return the flags that have a value; the plugin has those of kubectl in another list."""
    options = (option for verb in VERBS for option in options_of(verb) if not option.is_flag)
    return {name for option in options for name in _long(option)} - OF_KUBECTL


def _letters() -> Iterator[tuple[str, list[str]]]:
    """Yield each letter with its long form; a letter of two switches stays as it is."""
    forms = defaultdict(set)
    with_value = set()
    for option in (option for verb in VERBS for option in options_of(verb)):
        for letter in (name[1:] for name in option.opts if re.fullmatch("-[a-zA-Z]", name)):
            forms[letter].update(_long(option))
            with_value |= set() if option.is_flag else {letter}
    for letter, names in sorted(forms.items()):
        if letter != _AMBIGUOUS and len(names) == 1:
            yield letter, [*names]
        else:
            assert letter not in with_value, f"-{letter} has a value: it needs one long form"


def _flags() -> Iterator[tuple[str, list[str]]]:
    for verb in VERBS:
        names = [name for option in options_of(verb) for name in _long(option)]
        yield verb, [name for name in names if name not in OF_KUBECTL | OF_THE_POD]


def _choices() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the patterns of verb and flag, with the values; ``*`` if all verbs have the same."""
    for flag, verbs_by_values in sorted(_verbs_by_values().items()):
        for values, verbs in verbs_by_values.items():
            patterns = [f"'{verb} {flag}'" for verb in verbs]
            yield f"*' {flag}'" if len(verbs_by_values) == 1 else " | ".join(patterns), values


def _verbs_by_values() -> dict[str, dict[tuple[str, ...], list[str]]]:
    """Return flag -> the values of a choice -> the verbs for which the flag has these values."""
    found: dict[str, dict[tuple[str, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for verb in VERBS:
        for option in options_of(verb):
            if isinstance(option.type, click.Choice):
                for name in _long(option):
                    found[name][tuple(map(str, option.type.choices))].append(verb)
    return found
