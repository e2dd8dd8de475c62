"""Which texts Kubernetes accepts as label keys, label values and qualified names.

Source of the rules: apimachinery ``pkg/util/validation``, 1.36.
"""

from __future__ import annotations

import re

_LONGEST_NAME = 63
_LONGEST_PREFIX = 253
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


def is_qualified_name(text: str) -> bool:
    """Tell whether ``text`` is a name, alone or behind a DNS subdomain and a slash; label keys are such names."""
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= _LONGEST_PREFIX and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return _is_name(name)


def is_label_value(text: str) -> bool:
    """Tell whether ``text`` may be the value of a label; the empty text may."""
    return not text or _is_name(text)


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None
