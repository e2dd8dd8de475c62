"""A stand-in for a reflector, where a test brings the objects itself."""

from __future__ import annotations

import asyncio

from extender.model.kind import Kind


class Listed:
    """Stands for a reflector that listed its kind."""

    synced, failing, resource_version = True, "", None

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    async def run(self) -> None:
        await asyncio.Event().wait()
