"""A holder is proved dead only where its pid is comparable (I10)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milepost.jobmaster import Session
from milepost.jobmaster.job import session as sessions
from milepost.jobmaster.job.session import is_provably_dead

HOLDER = Session.cli().holder
GONE = replace(HOLDER, create_time_ms=HOLDER.create_time_ms - 3_600_000)


def test_a_process_of_this_machine_is_judged_by_pid_and_creation_time() -> None:
    assert not is_provably_dead(HOLDER)
    assert is_provably_dead(GONE)
    assert not is_provably_dead(replace(GONE, kind="airflow"))


@pytest.mark.parametrize("machine", ["another-boot/pid:[4026531836]", None])
def test_the_same_host_name_elsewhere_proves_nothing(machine: str | None) -> None:
    """Containers can share a host name. A pid is not comparable between them, nor after a reboot."""
    assert GONE.host == HOLDER.host
    assert not is_provably_dead(replace(GONE, machine=machine))


def test_a_machine_that_does_not_say_which_it_is_never_proves_a_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_PROC", tmp_path)
    assert Session.cli().holder.machine is None
    assert not is_provably_dead(GONE)
    assert not is_provably_dead(replace(GONE, machine=None))
