"""Commands as data: the only module that creates commands and formats them as text.

A tenant may choose the names, paths and labels in a command. A value is therefore always one word
of ``argv``. The printed text is quoted for a shell, so that ``shlex.split`` of the text returns
``argv``.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.model import Command, Verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rbdagent.model import Sentence

NOT_PRINTED: Final = (
    "(a command is not printed: a name in it contains characters that a terminal does not show; "
    "-o json contains its words)"
)

PROGRAM: Final = ("rbdagent",)
"""How rbdagent is started where it is installed on the node."""

_READING: Final = {
    "kubectl": ("get", "describe", "logs", "api-resources"),
    "ceph": ("-s", "fsid", "df", "health", "mon dump", "mon stat", "auth get", "auth ls",
             "osd pool ls", "osd find", "osd perf", "osd tree",
             "config get", "rbd task list", "osd blocklist ls", "versions", "mgr module ls"),
    "rbd": ("info", "status", "lock ls", "snap ls", "trash ls", "mirror image status",
            "image-meta list", "children", "ls", "namespace ls"),
    "rbdagent": ("check", "diagnose", "drain-check", "explain", "images", "lint", "list",
                 "who-holds"),
    "rados": ("getomapval", "listwatchers", "ls", "stat"),
    "df": ("",), "ip": ("-br address", "route get"),
    "systemctl": ("status",),
    "crictl": ("pods",),
    "dmsetup": ("info",),
    "dumpe2fs": ("-h",), "xfs_info": ("",),
    "losetup": ("--list",),
    "swapon": ("--show",),
    "cat": ("",), "findmnt": ("",), "grep": ("",), "journalctl": ("",), "ls": ("",), "lsblk": ("",),
    "ps": ("",), "ss": ("-tno",),
}  # fmt: skip
"""The beginnings of the read-only commands of each program."""


def command(
    begin: str, *values: str, options: Sequence[str] = (), node: str | None = None, note: str = ""
) -> Command:
    """Return a command: its beginning, then values, then options.

    Args:
        begin: a literal with program, subcommands and their options, split at spaces.
        values: names and paths from outside, one word each. If a value begins with ``-``, the
            options come first, and ``--`` ends them: a value never becomes an option.
        options: options, each followed by its value, if it has one, as the next word.
        node: the node on which to run it.
        note: when or why to run it.
    """
    program, *words = begin.split()
    # Without --yes, unmap prints its plan.
    is_plan = begin == "rbdagent unmap" and "--yes" not in options
    return Command(
        argv=(program, *words, *_ordered(values, options)),
        node=node,
        changes=not (is_plan or _only_reads(program, words)),
        note=note,
    )


def kubectl(
    begin: str, *values: str, namespace: str | None = None, options: Sequence[str] = ()
) -> Command:
    """Return a command of kubectl, see :func:`command`.

    Args:
        begin: without the program.
        values: names.
        namespace: None if the object has no namespace.
        options: as for :func:`command`.
    """
    words = begin.split()
    scope = () if namespace is None else ("-n", namespace)
    return Command(
        argv=("kubectl", *scope, *words, *_ordered(values, options)),
        changes=not _only_reads("kubectl", words),
    )


def over_ssh(node: str, inner: Command) -> Command:
    """Return a command that runs another one on a node.

    ssh joins its words with spaces, and the shell of the node splits them again. If a word has to
    be quoted for that shell, the whole inner command is one quoted word.
    """
    text = shlex.join(inner.argv)
    inside = inner.argv if text == " ".join(inner.argv) else (text,)
    ends = ("--",) if node.startswith("-") else ()
    return Command(argv=("ssh", *ends, node, *inside), changes=inner.changes)


def inside_network(pid: int, inner: Command) -> Command:
    """Return a command that runs another one of the host in the network namespace of a process."""
    words = ("nsenter", "--target", str(pid), "--net")
    return replace(inner, argv=(*words, *inner.argv))


def with_note(given: Command, note: str) -> Command:
    """Return a command with another note."""
    return replace(given, note=note)


class Template(Struct, frozen=True, kw_only=True):
    """A command with ``{name}`` in place of each value that is known only later."""

    begin: str
    values: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    namespace: str | None = None
    """The namespace of the object, for a command of kubectl."""
    node: str | None = None
    """The node that runs the command, reached with ssh."""

    @property
    def names(self) -> frozenset[str]:
        """The names that the template needs."""
        given = (*self.values, *self.options, self.namespace or "", self.node or "")
        return frozenset(name for word in given for name in re.findall(_NAME, word))

    def filled(self, fields: Mapping[str, str]) -> Command | None:
        """Return the command; None if a name is not known."""
        if not all(fields.get(name) for name in self.names):
            return None
        values = [word.format_map(fields) for word in self.values]
        options = [word.format_map(fields) for word in self.options]
        if self.namespace is not None:
            begin, scope = self.begin.removeprefix("kubectl "), self.namespace.format_map(fields)
            return kubectl(begin, *values, namespace=scope, options=options)
        found = command(self.begin, *values, options=options)
        return found if self.node is None else over_ssh(self.node.format_map(fields), found)


def template(
    begin: str,
    *values: str,
    options: tuple[str, ...] = (),
    namespace: str | None = None,
    node: str | None = None,
) -> Template:
    """Return a template, see :func:`command`; ``begin`` contains no names."""
    return Template(begin=begin, values=values, options=options, namespace=namespace, node=node)


_NAME: Final = r"(?<!{){(\w+)}"


def filled(templates: Iterable[Template], fields: Mapping[str, str]) -> tuple[Command, ...]:
    """Return the commands whose names are all known."""
    found = (given.filled(fields) for given in templates)
    return tuple(made for made in found if made is not None)


def text_of(given: Command) -> str | None:
    """Return a command as text for a shell; None if a terminal does not show all its characters.

    Such characters are control characters, direction marks and lone surrogates. With them, the text
    on the terminal differs from the text that the shell receives.
    """
    if not all(word.isprintable() for word in given.argv):
        return None
    return shlex.join(given.argv)


def line_of(given: Command) -> str:
    """Return a command as a line to copy; a comment in it shows where and when to run it."""
    text = text_of(given)
    if text is None:
        return NOT_PRINTED
    # Some interactive shells parse a comment as words, so quote the node too.
    where = f"on {shlex.quote(given.node)}" if given.node is not None else ""
    comment = ", ".join(word for word in (where, given.note) if word)
    if not comment.isprintable():
        return NOT_PRINTED
    return f"{text}  # {comment}" if comment else text


def lines_of(given: Iterable[Command], program: Sequence[str] = PROGRAM) -> tuple[str, ...]:
    """Return commands as lines to copy, without duplicates.

    Args:
        given: the commands.
        program: the words that start rbdagent in the place of the reader.
    """
    useful = for_reader(given, program)
    return tuple(dict.fromkeys(line_of(reached_as(program, one)) for one in useful))


def for_reader(given: Iterable[Command], program: Sequence[str] = PROGRAM) -> tuple[Command, ...]:
    """Return the commands without those that a reader cannot run, and that the answer replaces.

    A reader of the kubectl plugin has no shell on the node. The answer itself shows user, start,
    parent and arguments of the processes, as ``ps`` does.
    """
    is_on_host = tuple(program) == PROGRAM
    return tuple(one for one in given if is_on_host or one.argv[0] != "ps")


def reached_as(program: Sequence[str], given: Command) -> Command:
    """Return a command of rbdagent as it is typed where other words start rbdagent.

    kubectl's plugin runs a verb on the node that ``--node`` names: such a command needs no ssh.
    Commands of other programs stay unchanged.
    """
    if tuple(program) == PROGRAM:
        return given
    node, words = given.node, given.argv
    if words[0] == "ssh":
        node, *inner = words[2:] if words[1] == "--" else words[1:]
        words = tuple(shlex.split(" ".join(inner)))
    if words[:1] != PROGRAM:
        return given
    end = words.index("--") if "--" in words else len(words)
    scope = () if node is None else ("--node", node)
    return replace(given, argv=(*program, *words[1:end], *scope, *words[end:]), node=None)


def for_cluster(given: Command, flags: Mapping[str, Sequence[str]]) -> Command:
    """Return a command with the flags that lead its program to the cluster that was asked.

    Args:
        given: the command; one that runs on another node stays unchanged.
        flags: by program.
    """
    begin, *words = given.argv
    chosen = flags.get(begin, ())
    if not chosen or words[:1] == ["explain"]:
        return given
    if begin != PROGRAM[0]:
        return replace(given, argv=(begin, *chosen, *words))
    end = words.index("--") if "--" in words else len(words)
    return replace(given, argv=(begin, *words[:end], *chosen, *words[end:]))


def sentence_of(given: Sentence, program: Sequence[str] = PROGRAM) -> str:
    """Return a text with its commands as they are typed where it is read.

    A sentence goes on after a command, so no comment shows where to run it: the sentence does.

    Args:
        given: the text, or its parts.
        program: as for :func:`lines_of`.
    """
    if isinstance(given, str):
        return given
    return "".join(_part(part, program) for part in given)


def _part(given: str | Command | Verb, program: Sequence[str]) -> str:
    match given:
        case str():
            return given
        case Verb(name=name):
            return " ".join((*program, name))
        case Command():
            return text_of(reached_as(program, given)) or NOT_PRINTED


def _ordered(values: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
    if any(value.startswith("-") for value in values):
        return (*options, "--", *values)
    return (*values, *options)


def _only_reads(program: str, words: Sequence[str]) -> bool:
    given = " ".join(words)
    return any(
        given == known or not known or given.startswith(f"{known} ")
        for known in _READING.get(program, ())
    )
