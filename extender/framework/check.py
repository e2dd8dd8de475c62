"""Checks of what algorithms return; each failure says what an algorithm must return, and what this one did."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from extender.errors import AnswerError
from extender.framework.algorithm import MAX_NODE_SCORE, Refusal
from extender.model.column import IntArray


def check_reason(reason: object) -> None:
    """Check why an algorithm refuses.

    Raises:
        AnswerError: it is no text, or an empty one.
    """
    if not isinstance(reason, str):
        raise AnswerError(f"a refusal's reason must be text, got {_kind(reason)}")
    if not reason:
        raise AnswerError("a refusal must have a reason")


def check_refusal(refusal: object, candidates: int) -> None:
    """Check what a predicate refuses.

    Raises:
        AnswerError: it is no refusal, has no reason, or its mask does not fit the candidates.
    """
    if not isinstance(refusal, Refusal):
        raise AnswerError(f"a predicate must return refusals, got {_kind(refusal)}")
    check_reason(refusal.reason)
    mask = refusal.nodes
    if mask is not None and not (_has_shape(mask, candidates) and mask.dtype == np.bool_):
        raise AnswerError(f"a refusal's nodes must be bool of shape ({candidates},), got {_kind(mask)}")


def check_scores(scores: IntArray, candidates: int) -> None:
    """Check the normalised scores of a priority.

    Raises:
        AnswerError: they are not integers, one a candidate, or not all of 0..100.
    """
    if not (_has_shape(scores, candidates) and scores.dtype.kind == "i"):
        raise AnswerError(f"scores must be integers of shape ({candidates},), got {_kind(scores)}")
    if candidates and (int(scores.min()) < 0 or int(scores.max()) > MAX_NODE_SCORE):
        raise AnswerError(
            f"normalised scores must be 0 to {MAX_NODE_SCORE}, got {int(scores.min())} to {int(scores.max())}"
        )


def check_reserved(found: object, others: Mapping[str, str]) -> None:
    """Check what a reserver returns; ``others`` are the annotations of those before it.

    Raises:
        AnswerError: it is neither a refusal with a reason nor texts by name, or another one has set one of these.
    """
    if found is None:
        return
    if isinstance(found, Refusal):
        check_reason(found.reason)
        return
    if not isinstance(found, Mapping) or not all(isinstance(text, str) for pair in found.items() for text in pair):
        raise AnswerError(f"a reserver must return annotations of text, got {found!r}")
    taken = sorted(found.keys() & others.keys())
    if taken:
        raise AnswerError(f"annotation {taken[0]!r} is set by another algorithm as well")


def _has_shape(value: object, candidates: int) -> bool:
    return isinstance(value, np.ndarray) and value.shape == (candidates,)


def _kind(value: object) -> str:
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
