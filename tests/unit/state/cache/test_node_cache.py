"""The process that uses a node's cache decides its location, not the process that plans."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from milepost.state.cache.cache_folder import NODE_CACHE_VARIABLE, EachNodesCache, node_cache


def test_each_node_has_its_cache_in_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NODE_CACHE_VARIABLE, str(tmp_path / "driver"))
    plan = pickle.dumps(EachNodesCache("job"))
    assert os.fspath(pickle.loads(plan)) == node_cache("job") == str(tmp_path / "driver" / "state-1" / "job")
    monkeypatch.setenv(NODE_CACHE_VARIABLE, str(tmp_path / "worker"))
    assert os.fspath(pickle.loads(plan)) == str(tmp_path / "worker" / "state-1" / "job")


def test_a_node_without_a_home_keeps_its_cache_among_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NODE_CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert node_cache("job") == str(tmp_path / f"milepost-{os.getuid()}" / "state-1" / "job")
