"""The columns of every frame, in order, with their types: what docs/schema.md explains.

A frame has exactly these columns whatever the run holds, an empty one included. `Int64`, `boolean`
and `string` columns use pandas.NA for "not known"; `float64` columns NaN.
"""

from __future__ import annotations

from savermark.meter import FIELDS

# Counts changes of names, order, types or meaning. Adding a column at the end counts too.
FRAME_VERSION = 3

CASE: dict[str, str] = {
    "run_id": "string",
    "workload": "string",
    "variant": "string",
    "backend": "string",
    "api": "string",
    "durability": "string",
    "mode": "string",
    "snapshot_frequency": "Int64",
    "threads": "Int64",
    "turns": "Int64",
    "fingerprint": "string",
    "repetition": "Int64",
}

_SERIES = {"phase": "string", "op": "string", "temperature": "string", "at": "string"}

OWN: dict[str, dict[str, str]] = {
    "storage": {
        "phase": "string",
        "thread_id": "string",
        "checkpoint_ns": "string",
        "table": "string",
        "channel": "string",
        "rows": "int64",
        "logical_bytes": "int64",
        "stored_bytes": "Int64",
    },
    "footprint": {
        "phase": "string",
        "component": "string",
        "table": "string",
        "bytes": "int64",
    },
    "floor": {
        "phase": "string",
        "thread_id": "string",
        "distinct_payloads": "int64",
        "bytes": "int64",
    },
    "samples": {
        **_SERIES,
        "index": "int64",
        "depth": "int64",
        "ns": "int64",
        "warmup": "bool",
    },
    "latency": {
        **_SERIES,
        "window": "string",
        "n": "int64",
        "p50_ns": "float64",
        "p90_ns": "float64",
        "p95_ns": "float64",
        "p99_ns": "float64",
        "max_ns": "float64",
        "p50_low_ns": "float64",
        "p50_high_ns": "float64",
    },
    "cost": {
        **{name: dtype for name, dtype in _SERIES.items() if name != "temperature"},
        "depth": "int64",
        **dict.fromkeys(FIELDS, "Int64"),
        "exact": "string",
    },
    "checks": {
        "phase": "string",
        "check": "string",
        "ok": "bool",
        "detail": "string",
    },
    "trials": {
        "status": "string",
        "cause": "string",
        "started_at": "string",
        "duration_ns": "int64",
        "setup_ns": "Int64",
        "run_wall_ns": "Int64",
        "saver_busy_ns": "Int64",
        "cpu_user_ns": "Int64",
        "cpu_system_ns": "Int64",
        "peak_rss_bytes": "Int64",
    },
    "findings": {
        "severity": "string",
        "finding": "string",
        "subject": "string",
        "detail": "string",
        "remedy": "string",
    },
}

SUMMARY: dict[str, str] = {
    **{name: dtype for name, dtype in CASE.items() if name != "repetition"},
    "repetitions": "int64",
    "status": "string",
    "checks_ok": "boolean",
    "checkpoints_rows": "float64",
    "blobs_rows": "float64",
    "writes_rows": "float64",
    "logical_bytes": "float64",
    "bytes_per_thread": "float64",
    "rows_per_thread": "float64",
    "footprint_loaded_bytes": "float64",
    "footprint_retained_bytes": "float64",
    "footprint_compacted_bytes": "float64",
    "floor_bytes": "float64",
    "amplification": "float64",
    "turn_p50_ns": "float64",
    "get_state_warm_p50_ns": "float64",
    "get_state_cold_p50_ns": "float64",
    "history_10_p50_ns": "float64",
    "walk_native_p50_ns": "float64",
    "peak_rss_bytes": "float64",
    "blob_bytes": "float64",
    "dedup_ratio": "float64",
    "capture_p50_ns": "float64",
    "append_p50_ns": "float64",
    "get_warm_p50_ns": "float64",
    "restore_warm_p50_ns": "float64",
    "restore_cold_p50_ns": "float64",
}


def columns(kind: str) -> list[str]:
    """The column names of a frame, case columns first."""
    return [*CASE, *OWN[kind]]
