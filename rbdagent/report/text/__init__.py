"""Output as text, one module for each kind of answer; `layout` has the shared layout."""
