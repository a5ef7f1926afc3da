"""The HTML page of ``diagnose -o html``: its markup, its style sheet and its icons."""
