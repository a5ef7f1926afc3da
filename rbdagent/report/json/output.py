"""The base types of the machine outputs, and the formats of their texts."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from rbdagent.model import API_VERSION, camel

Code = Annotated[str, Meta(pattern="^RBD[0-9]{3}$")]
Time = Annotated[
    str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z$")
]


class Object(Struct, frozen=True, kw_only=True, rename=camel):
    """An object in an output; every field is always written."""


class Output(Object, frozen=True, kw_only=True):
    """A machine output; its kind is the name of its type, and of its schema."""

    api_version: Literal["rbdagent.dev/v1alpha1"] = API_VERSION
    kind: str
