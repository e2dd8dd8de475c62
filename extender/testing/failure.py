"""What kube-scheduler runs into when an extender misbehaves.

::

    Exception
    ├── ExtenderCallError       the call failed; the text is kube-scheduler's own
    │   └── DecodeError         the reply's body is not what Go's decoder accepts
    └── SchedulerPanic          the reply brings kube-scheduler down
"""

from __future__ import annotations


class ExtenderCallError(Exception):
    """The call failed; the text is what kube-scheduler 1.36 puts into its log and the pod's events.

    ``status`` is the HTTP status when that was at fault, else ``None``.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class DecodeError(ExtenderCallError):
    """The reply's body is not JSON, or not of the verb's type, in the words of Go's encoding/json."""


class SchedulerPanic(Exception):
    """The reply makes kube-scheduler dereference a nil pointer: the process ends, for all profiles and pods."""

    def __init__(self) -> None:
        super().__init__("runtime error: invalid memory address or nil pointer dereference")
