"""Lineage of checkpoints: rows as plain records, keep-sets, and access to the rows of a store.

- `lineage`: the records and the pure rules, without a store.
- `keepset`: `keep_set` through the public methods of any saver.
- `rows`: `row_access(saver)`: images and one-thread transactions on memory, SQLite and Postgres;
  `arows` the same behind an async saver.
"""
