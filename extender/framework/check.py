"""Checks of what algorithms return; each failure names the algorithm, what it must return, and what it did."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from extender.errors import AlgorithmError
from extender.framework.algorithm import MAX_NODE_SCORE, Refusal
from extender.model.column import IntArray


def check_refusal(algorithm: str, refusal: object, candidates: int) -> None:
    """Check what a predicate refuses.

    Raises:
        AlgorithmError: it is no refusal, has no reason, or its mask does not fit the candidates.
    """
    if not isinstance(refusal, Refusal):
        raise AlgorithmError(algorithm, f"a predicate must return refusals, got {_kind(refusal)}")
    if not refusal.reason:
        raise AlgorithmError(algorithm, "a refusal must have a reason")
    mask = refusal.nodes
    if mask is not None and not (_has_shape(mask, candidates) and mask.dtype == np.bool_):
        raise AlgorithmError(algorithm, f"a refusal's nodes must be bool of shape ({candidates},), got {_kind(mask)}")


def check_scores(algorithm: str, scores: IntArray, candidates: int) -> None:
    """Check the normalised scores of a priority.

    Raises:
        AlgorithmError: they are not integers, one a candidate, or not all of 0..100.
    """
    if not (_has_shape(scores, candidates) and scores.dtype.kind == "i"):
        raise AlgorithmError(algorithm, f"scores must be integers of shape ({candidates},), got {_kind(scores)}")
    if candidates and (int(scores.min()) < 0 or int(scores.max()) > MAX_NODE_SCORE):
        raise AlgorithmError(
            algorithm,
            f"normalised scores must be 0 to {MAX_NODE_SCORE}, got {int(scores.min())} to {int(scores.max())}",
        )


def check_annotations(algorithm: str, annotations: object, others: Mapping[str, str]) -> None:
    """Check what a reserver returns; ``others`` are the annotations of those before it.

    Raises:
        AlgorithmError: they are not texts by name, or another one has set them.
    """
    if not isinstance(annotations, Mapping) or not all(
        isinstance(text, str) for pair in annotations.items() for text in pair
    ):
        raise AlgorithmError(algorithm, f"a reserver must return annotations of text, got {annotations!r}")
    taken = sorted(annotations.keys() & others.keys())
    if taken:
        raise AlgorithmError(algorithm, f"annotation {taken[0]!r} is set by another algorithm as well")


def _has_shape(value: object, candidates: int) -> bool:
    return isinstance(value, np.ndarray) and value.shape == (candidates,)


def _kind(value: object) -> str:
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
