"""The only clock around saver calls.

`RecordingSaver` wraps any saver; `Recorder` holds what was seen. All wrappers of one trial share
one recorder, because the runtime may work on a clone of the saver (under strict msgpack it does).
"""

from savermark.recording.calls import overrides
from savermark.recording.recorder import OPS, Recorder, merged_busy_ns
from savermark.recording.saver import RecordingSaver

__all__ = ["OPS", "Recorder", "RecordingSaver", "merged_busy_ns", "overrides"]
