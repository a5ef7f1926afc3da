"""The machine outputs: the type of each kind, and its conversion from the model.

msgspec writes JSON, YAML and the JSON Schema from these types (``cli/output.py``,
``report/schema.py``). A field that has no value is null. A list that was not observed is null too,
and ``notObserved`` of the same object has the reason; an empty list was observed.

Each module has the outputs of one verb, or the objects that several outputs contain. A verb imports
only its module: creating a type takes time at each start (docs/adr/0002-structs.md).
"""
