"""HTTP as it is spoken: bytes to a socket, and answers read back one by one."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any
from urllib.parse import urlsplit


def connect(url: str) -> socket.socket:
    return socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=10)


def read_answer(opened: socket.socket) -> tuple[int, Any]:
    """Status and content of the next answer; what is no JSON is text."""
    stream = opened.makefile("rb", buffering=0)
    status, headers = int(stream.readline().split()[1]), {}
    while (line := stream.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    content = b""
    while len(content) < int(headers[b"content-length"]):
        content += stream.read(int(headers[b"content-length"]) - len(content)) or b""
    return status, json.loads(content) if headers[b"content-type"] == b"application/json" else content.decode()


def is_closed(opened: socket.socket) -> bool:
    """Wait for the end of a connection, which is an error where something was on its way."""
    with contextlib.suppress(ConnectionError):
        return opened.recv(1) == b""
    return True
