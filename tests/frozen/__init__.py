"""Facts that a rebuilding must not change: faces, bytes, contents, commands, HTTP responses, reads.

`python -m tests.frozen` compares them with the code, `--record` writes them anew. A wanted change
stands in ``allowed.toml`` with its reason until the facts are recorded anew.
"""
