"""Where the programs of a control plane come from, and what is said where they are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.control_plane import PROGRAMS, assets


def test_without_a_folder_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBE_ASSETS", raising=False)
    assert assets() == (None, "KUBE_ASSETS names no folder with etcd, kube-apiserver, kube-scheduler")


def test_programs_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBE_ASSETS", str(tmp_path))
    (tmp_path / "etcd").touch(mode=0o755)
    (tmp_path / "kube-scheduler").touch(mode=0o644)
    assert assets() == (None, f"KUBE_ASSETS={tmp_path} lacks kube-apiserver, kube-scheduler")


def test_a_folder_with_all_programs_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBE_ASSETS", str(tmp_path))
    for name in PROGRAMS:
        (tmp_path / name).touch(mode=0o755)
    assert assets() == (tmp_path, "")
