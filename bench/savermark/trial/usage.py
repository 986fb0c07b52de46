"""What this process used."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path


def peak_rss_bytes() -> int:
    """The most memory this process has held.

    Not `ru_maxrss` where there is better: on Linux a process inherits it from the one that started
    it, so that a large runner would show as a large worker.
    """
    try:
        for line in Path(f"/proc/{os.getpid()}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
