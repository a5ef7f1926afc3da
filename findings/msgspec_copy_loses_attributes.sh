#!/bin/bash
# msgspec 0.22.0: copy.copy of a Struct with dict=True loses every attribute that is not a field.
#
# dict=True gives the instances of a Struct a __dict__, so that further attributes can be set and
# functools.cached_property works. The fields are copied and the __dict__ is not: an attribute that was set
# on the original raises AttributeError on its copy, and pickle and copy.deepcopy lose it as well. An object
# of an ordinary class keeps it in all three. Expected: a copy with the same attributes.
#
# Seen with msgspec 0.22.0 and Python 3.11: the field is there, and the attribute is not, in no kind of copy.
set -euo pipefail

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
python3 -m venv "$temporary/venv"
"$temporary/venv/bin/pip" install --quiet --disable-pip-version-check msgspec==0.22.0

seen=$("$temporary/venv/bin/python" - <<'PY'
import copy
import pickle

import msgspec


class Measured(msgspec.Struct, dict=True):
    metres: int


class Plain:
    pass


def kept(original):
    copies = (copy.copy(original), copy.deepcopy(original), pickle.loads(pickle.dumps(original)))
    return [hasattr(each, "note") for each in copies]


measured, plain = Measured(2), Plain()
measured.note = plain.note = "by hand"
print("Struct:", kept(measured), "field:", copy.copy(measured).metres)
print("class:", kept(plain))
PY
)
expected='Struct: [False, False, False] field: 2
class: [True, True, True]'
echo "$seen"
[ "$seen" = "$expected" ] || { echo "msgspec behaves otherwise now; expected:"; echo "$expected"; exit 1; }
