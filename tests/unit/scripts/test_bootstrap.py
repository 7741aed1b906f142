"""The build of the environments stays in its clone."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import bootstrap


def test_an_environment_that_is_a_link_to_another_clones_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs / ".venv", ours):
        folder.mkdir(parents=True)
    (ours / ".venv").symlink_to(theirs / ".venv")
    monkeypatch.setattr(bootstrap, "ROOT", ours)
    with pytest.raises(SystemExit) as stopped:
        bootstrap.main()
    assert stopped.value.code == 8 and f"is a link to {theirs / '.venv'}" in capsys.readouterr().err
    assert not any((theirs / ".venv").iterdir())
