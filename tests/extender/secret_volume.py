"""A directory that is filled as the kubelet fills the volume of a Secret."""

from __future__ import annotations

import os
from pathlib import Path


class SecretVolume:
    """Files that change all at once, by pointing ``..data`` at another directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._version = 0
        directory.mkdir(exist_ok=True)

    def put(self, **files: bytes) -> None:
        """Replace all files; underscores in their names stand for dots."""
        self._version += 1
        version = self._directory / f"..version-{self._version}"
        version.mkdir()
        named = {name.replace("_", "."): content for name, content in files.items()}
        for name, content in named.items():
            (version / name).write_bytes(content)
        (self._directory / "..new").symlink_to(version)
        os.replace(self._directory / "..new", self._directory / "..data")
        for name in named:
            if not (self._directory / name).is_symlink():
                (self._directory / name).symlink_to(f"..data/{name}")

    def path(self, name: str) -> str:
        """Return where a file is read."""
        return str(self._directory / name)
