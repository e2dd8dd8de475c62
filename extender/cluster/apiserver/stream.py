"""A watch on its way to a client, with whatever a test makes go wrong on it."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from contextlib import aclosing

from aiohttp import web

from extender.cluster.apiserver.fault import Fault, Interruption
from extender.cluster.apiserver.watch import Watch

_HALF_A_LINE = b'{"type":"MODIFIED","object":{"kind":"'


class Stream:
    """One watch and the connection it is written to."""

    def __init__(self, request: web.BaseRequest, watch: Watch, fault: Fault | None) -> None:
        """Write ``watch`` to the client of ``request``; ``fault`` may interrupt it."""
        self.path = request.path
        self._request = request
        self._watch = watch
        self._interruption = fault.interruption if fault else None
        self._interrupt_at = fault.after_lines if fault else 0
        self._sent_lines = 0

    def interrupt(self, interruption: Interruption) -> None:
        """Interrupt the watch as soon as it runs again."""
        self._interruption = interruption
        self._interrupt_at = self._sent_lines
        self._watch.wake()

    async def run(self) -> web.StreamResponse:
        """Send the watch until it ends or the client goes away."""
        response = web.StreamResponse(headers={"Cache-Control": "no-cache, private"})
        response.content_type = "application/json"
        await response.prepare(self._request)
        async with aclosing(self._watch.batches()) as batches:
            async for lines in batches:
                due = self._interrupt_at - self._sent_lines
                if self._interruption is None or len(lines) < due:
                    await self._send(response, lines)
                    continue
                await self._send(response, lines[:due])
                if await self._is_ended_by(self._interruption, response):
                    break
                self._interruption = None
                await self._send(response, lines[due:])
        return response

    async def _send(self, response: web.StreamResponse, lines: list[bytes]) -> None:
        if lines:
            self._sent_lines += len(lines)
            await response.write(b"".join(lines))

    async def _is_ended_by(self, interruption: Interruption, response: web.StreamResponse) -> bool:
        """Interrupt the watch; tell whether that was its end."""
        match interruption:
            case Interruption.HANG:
                await asyncio.Event().wait()  # until the client or the server closes the connection
            case Interruption.CUT:
                reset_connection(self._request)
            case Interruption.GARBAGE:
                await response.write(_HALF_A_LINE + b"\n")
                return False
            case Interruption.TRUNCATED:
                await response.write(_HALF_A_LINE)
            case Interruption.EXPIRED:
                await response.write(self._watch.expired_line())
        return True


def reset_connection(request: web.BaseRequest) -> None:
    """Break the connection so that the client sees a reset rather than an orderly end."""
    transport = request.transport
    if transport is None:
        return
    connection: socket.socket = transport.get_extra_info("socket")
    # Options belong to the connection, so a second descriptor serves where a loop hides setsockopt.
    with socket.socket(fileno=os.dup(connection.fileno())) as twin:
        twin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
