"""Every exception of the service, and what each verb makes of a failure.

::

    ExtenderError
    ├── ConfigurationError      the configuration cannot be used; all findings at once, each with its path
    ├── RequestError            the request is at fault                               (400, or 413 over the body cap)
    │   ├── BodyTooLarge
    │   ├── BodyTimeout
    │   └── SubjectNotAllowed
    ├── NotReadyError           caches are not complete yet                           (503)
    ├── NotLeaderError          another replica is to do this                         (503)
    ├── DeadlineExceeded        the answer would come after kube-scheduler hung up    (504)
    ├── AlgorithmError          an algorithm failed; names it                         (500)
    ├── AnswerError             an algorithm answered what it must not                (500)
    ├── CacheError              a cache failed; names it                              (500)
    ├── BindError               the pod was not bound; says why                       (500)
    ├── QuantityError           a quantity that Kubernetes would refuse               (400)
    ├── SelectorError           a selector that Kubernetes would refuse               (400)
    └── ClusterError            the API server
        ├── ApiError            answered with a Status                                (502)
        └── ApiUnreachable      did not answer, or not in time                        (502)

Outcomes are values: that no node fits, or that a node is refused, is never an exception.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final


class ExtenderError(Exception):
    """Root of all errors raised here; ``status`` is the HTTP code for verbs whose reply has no error field."""

    status = 500


class ConfigurationError(ExtenderError):
    """The configuration cannot be used; ``problems`` has one line a finding, each with path and remedy."""

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class RequestError(ExtenderError):
    """The request cannot be understood; the message names the field and the remedy."""

    status = 400


class BodyTooLarge(RequestError):
    """The request body is over the configured cap."""

    status = 413


class BodyTimeout(RequestError):
    """The request body did not arrive in time."""

    status = 408


class SubjectNotAllowed(RequestError):
    """The client certificate has none of the names that may call."""

    status = 403


class NotReadyError(ExtenderError):
    """The caches are not complete yet, so an answer could be wrong."""

    status = 503


class NotLeaderError(ExtenderError):
    """Another replica holds the lease, or none does at the moment."""

    status = 503


class DeadlineExceeded(ExtenderError):
    """The work was abandoned because kube-scheduler would not have waited for the answer."""

    status = 504


class AlgorithmError(ExtenderError):
    """An algorithm raised; ``algorithm`` is its name and ``__cause__`` what it raised."""

    def __init__(self, algorithm: str, message: str) -> None:
        self.algorithm = algorithm
        super().__init__(f"{algorithm}: {message}")


class AnswerError(ExtenderError):
    """What an algorithm returned is no answer; who runs it tells whose it is."""


class CacheError(ExtenderError):
    """A cache raised, so that nobody knows its state; ``__cause__`` is what it raised."""

    def __init__(self, cache: str, message: str) -> None:
        super().__init__(f"cache {cache}: {message}")


class BindError(ExtenderError):
    """The pod was not bound; the message is what the operator reads in the pod's events."""


class QuantityError(ExtenderError):
    """A text that is not a Kubernetes quantity."""

    status = 400


class SelectorError(ExtenderError):
    """A label or node selector that Kubernetes would refuse."""

    status = 400


class ClusterError(ExtenderError):
    """The API server refused or could not be reached."""

    status = 502


class ApiError(ClusterError):
    """The API server answered with a Status other than success."""

    def __init__(self, status: int, reason: str, message: str, retry_after_seconds: float | None = None) -> None:
        self.code = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"{message} ({reason}, {status})" if reason else f"{message} ({status})")


class ApiUnreachable(ClusterError):
    """No answer from the API server; ``maybe_done`` says that the request may have been carried out."""

    def __init__(self, message: str, *, maybe_done: bool = False) -> None:
        self.maybe_done = maybe_done
        super().__init__(message)


FAULTS: Final = (Exception, SystemExit)
"""What code from outside may raise without ending the service; an interrupt and a cancellation are not its own."""


class Channel(Enum):
    """How a verb tells kube-scheduler of a failure."""

    ERROR_FIELD = "status 200 and the Error field: its text reaches the pod's events"
    STATUS_CODE = "a status other than 200: the reply type has no error field"


@dataclass(frozen=True)
class Discipline:
    """One row of the table of errors: what kube-scheduler does when the verb fails."""

    channel: Channel
    consequence: str


DISCIPLINE: dict[str, Discipline] = {
    "filter": Discipline(Channel.ERROR_FIELD, "the scheduling attempt fails with the text, unless ignorable"),
    "bind": Discipline(Channel.ERROR_FIELD, "the binding cycle fails with the text and the pod is queued again"),
    "prioritize": Discipline(Channel.STATUS_CODE, "the scores are left out, which only a verbose log shows"),
    "preempt": Discipline(Channel.STATUS_CODE, "the preemption attempt fails, unless ignorable"),
}
"""The table of errors, one row a verb (source: pkg/scheduler/extender.go and schedule_one.go of 1.36)."""


def reply_status(verb: str, error: ExtenderError) -> int:
    """Return the HTTP status that carries ``error`` for ``verb``: 200 where the reply has an error field."""
    return 200 if DISCIPLINE[verb].channel is Channel.ERROR_FIELD else error.status
