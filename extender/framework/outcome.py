"""What becomes of candidates when predicates refuse some of them: one code a candidate, one outcome a code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final

import numpy as np
from numpy.typing import NDArray

from extender.framework.algorithm import NodeRefusals, Refusal
from extender.framework.check import check_reason, check_refusal
from extender.model.column import BoolArray

_BITS: Final = 8
"""So many refusals have a bit each in a key of one byte."""


@dataclass(frozen=True)
class Outcome:
    """Why some of the candidates were refused."""

    reasons: tuple[str, ...]
    resolvable: bool
    algorithm: str
    error: bool = False
    """Whether the algorithm could not judge these candidates."""

    @classmethod
    def of(cls, refusals: Sequence[Refusal], algorithm: str) -> Outcome:
        """Return what all these refusals together mean for the candidates that they name."""
        reasons = tuple(dict.fromkeys(refusal.reason for refusal in refusals))
        error = any(refusal.error for refusal in refusals)
        return cls(reasons, not error and all(refusal.resolvable for refusal in refusals), algorithm, error)

    def joined(self, *others: Outcome) -> Outcome:
        """Return what this and others mean together; named after this one."""
        every = (self, *others)
        reasons = tuple(dict.fromkeys(reason for outcome in every for reason in outcome.reasons))
        error = any(outcome.error for outcome in every)
        return Outcome(reasons, all(outcome.resolvable for outcome in every), self.algorithm, error)

    @property
    def code(self) -> str:
        """Upstream's name for the kind of refusal."""
        if self.error:
            return "Error"
        return "Unschedulable" if self.resolvable else "UnschedulableAndUnresolvable"

    @property
    def text(self) -> str:
        """All reasons in one line, as kube-scheduler shows them."""
        return ", ".join(self.reasons)


@dataclass(frozen=True)
class Filtered:
    """What became of each candidate: ``codes``, shape (candidates,), is 0 where the pod fits, else an outcome's place.

    ``outcomes[code - 1]`` says why.
    """

    codes: NDArray[np.int64]
    outcomes: Sequence[Outcome]

    @property
    def fits(self) -> BoolArray:
        """Which candidates the pod fits; shape (candidates,)."""
        fits: BoolArray = self.codes == 0
        return fits

    def same_as(self, other: Filtered) -> bool:
        """Say whether the same became of each candidate, for the same reasons."""
        return np.array_equal(self.codes, other.codes) and list(self.outcomes) == list(other.outcomes)

    def of(self, position: int) -> Outcome | None:
        """Return why the candidate at ``position`` was refused, or None where the pod fits."""
        code = int(self.codes[position])
        return self.outcomes[code - 1] if code else None


def join(left: Filtered, right: Filtered) -> Filtered:
    """Return what two predicates, or groups of them, together make of the same candidates, with the reasons of both."""
    pairs = left.codes * (len(right.outcomes) + 1) + right.codes
    distinct, codes = np.unique(np.append(pairs, 0), return_inverse=True)
    outcomes = []
    for pair in distinct.tolist()[1:]:
        codes_of_pair = zip((left, right), divmod(pair, len(right.outcomes) + 1), strict=True)
        first, *second = (filtered.outcomes[code - 1] for filtered, code in codes_of_pair if code)
        outcomes.append(first.joined(*second))
    return Filtered(codes[:-1].astype(np.int64, copy=False), outcomes)


def combine(refusals: Iterable[Refusal], candidates: int, algorithm: str) -> Filtered:
    """Give each candidate one code from all refusals of one predicate.

    Raises:
        AnswerError: a refusal has no reason, or its mask does not fit the candidates.
    """
    if isinstance(refusals, NodeRefusals) and len(refusals.codes) == candidates:
        return Filtered(refusals.codes, list(_outcomes_by_reason(refusals, algorithm)))
    kept = []
    for refusal in refusals:
        check_refusal(refusal, candidates)
        if refusal.nodes is None or refusal.nodes.any():
            kept.append(refusal)
    if not kept:
        return Filtered(np.zeros(candidates, np.int64), [])
    if len(kept) == 1:
        only = kept[0]
        outcome = Outcome.of(kept, algorithm)
        if only.nodes is None:
            return Filtered(np.ones(candidates, np.int64), [outcome])
        return Filtered(only.nodes.astype(np.int64), [outcome])
    keys, named_by_key = _group(kept, candidates)
    outcomes: list[Outcome] = []
    codes_by_key = np.zeros(max(named_by_key, default=0) + 1, np.int64)
    for key, named in named_by_key.items():
        outcomes.append(Outcome.of(named, algorithm))
        codes_by_key[key] = len(outcomes)
    return Filtered(codes_by_key.take(keys), outcomes)


def _outcomes_by_reason(refusals: NodeRefusals, algorithm: str) -> Iterator[Outcome]:
    for reason, resolvable in zip(refusals.reasons, refusals.resolvable, strict=True):
        check_reason(reason)
        yield Outcome((reason,), resolvable, algorithm)


def _group(refusals: list[Refusal], candidates: int) -> tuple[NDArray[np.intp], dict[int, list[Refusal]]]:
    """Return a key a candidate, equal for candidates that the same refusals name, and these refusals by key, ascending.

    Keys have shape (candidates,); that of candidates that nothing names is 0 and has no entry.
    """
    if len(refusals) > _BITS:
        return _group_many(refusals, candidates)
    bits = [1 << place for place in range(_BITS - 1, _BITS - 1 - len(refusals), -1)]
    packed = np.zeros(candidates, np.uint8)
    for refusal, bit in zip(refusals, bits, strict=True):
        packed |= np.uint8(bit) if refusal.nodes is None else refusal.nodes * np.uint8(bit)
    keys = packed.astype(np.intp)
    found: list[int] = np.flatnonzero(np.bincount(keys)).tolist()
    members = {key: [refusal for refusal, bit in zip(refusals, bits, strict=True) if key & bit] for key in found if key}
    return keys, members


def _group_many(refusals: list[Refusal], candidates: int) -> tuple[NDArray[np.intp], dict[int, list[Refusal]]]:
    """Do the same for more refusals than a byte has bits: the keys number the distinct sets, in the same order."""
    masks: BoolArray = np.empty((candidates, len(refusals)), np.bool_)
    for place, refusal in enumerate(refusals):
        masks[:, place] = True if refusal.nodes is None else refusal.nodes
    packed = np.packbits(masks, axis=1)
    _, places, keys = np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_index=True, return_inverse=True)
    members = {key: list(compress(refusals, named)) for key, named in enumerate(masks[places].tolist()) if any(named)}
    return keys, members
