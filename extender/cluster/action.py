"""What a request to the API server is called by its authorization: a verb and a resource."""

from __future__ import annotations

_VERB_OF_METHOD = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def action_of(method: str, path: str, *, watch: bool = False) -> tuple[str, str]:
    """Return verb and resource, such as ``create`` and ``pods/binding``, of a request for ``path``."""
    parts = path.split("/")
    rest = parts[3:] if parts[1] == "api" else parts[4:]
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    resource = "/".join(rest[::2][:2])
    if method != "GET":
        return _VERB_OF_METHOD[method], resource
    return "watch" if watch else "get" if len(rest) > 1 else "list", resource
