"""Units as people read them: decimal bytes (1 MB = 1,000,000 B), time from nanoseconds."""

from __future__ import annotations

_BYTES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_TIMES = (("s", 1e9), ("ms", 1e6), ("µs", 1e3))


def _scaled(value: float, units: tuple[tuple[str, float], ...], base: str) -> str:
    for name, size in units:
        if abs(value) >= size:
            number = value / size
            digits = 0 if abs(number) >= 100 else 1 if abs(number) >= 10 else 2
            return f"{number:,.{digits}f} {name}"
    return f"{value:,.0f} {base}"


def format_bytes(value: float) -> str:
    """Bytes with an SI prefix: `219 MB`, `1.50 kB`, `0 B`."""
    return _scaled(value, _BYTES, "B")


def format_ns(value: float) -> str:
    """Nanoseconds as a readable time: `1.50 ms`, `40.0 µs`, `120 ns`."""
    return _scaled(value, _TIMES, "ns")


def format_count(value: float) -> str:
    """A count with thousands separators: `1,250,000`."""
    return f"{value:,.0f}"


def amount(count: int, noun: str) -> str:
    """So many of them: `1 thread`, `1,250 threads`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
