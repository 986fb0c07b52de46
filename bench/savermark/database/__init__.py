"""Databases that exist: opened by their address, inspected and diagnosed without being changed.

- `opening`: `open_database(uri)`: a SQLite file or a Postgres database that LangGraph wrote.
- `inspect`: what it holds, in a fixed number of statements however many threads there are.
- `doctor`: the unsafe forms in it, each with what it breaks and what to do.
"""
