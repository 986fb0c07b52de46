"""Databases that exist: opened by their address, looked at, diagnosed and maintained.

- `opening`: `open_database(uri)`: a SQLite file or a Postgres database that LangGraph wrote.
- `inspect`: what it holds, in a fixed number of statements however many threads there are.
- `doctor`: the unsafe forms in it, each with what it breaks and what to do.
- `fleet`: a task done to many threads, each read back before and after; `tasks`: a policy, or runs.

Nothing is changed by a database that was not opened with `write=True`.
"""
