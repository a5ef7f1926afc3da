"""A snapshot as an agent takes it: of processes, sentences have the programs only."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.model import ProcessRef

_Value = TypeVar("_Value")


def published(value: _Value) -> _Value:
    """Return a value of the model in which every process is public."""
    if isinstance(value, ProcessRef):
        return replace(value, is_public=True)
    if isinstance(value, tuple):
        return type(value)(map(published, value))
    if isinstance(value, Struct):
        parts = {name: published(getattr(value, name)) for name in value.__struct_fields__}
        return replace(value, **parts)
    return value
