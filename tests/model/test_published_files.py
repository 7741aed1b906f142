"""A file that was published goes once small files were joined, nothing retained shows it, and grace is over (I8)."""

from __future__ import annotations

from pathlib import Path

from milepost_testkit.machines.protocol_world import Answers, World
from milepost_testkit.models.protocol.plain_model import TIMEOUT_MS
from milepost_testkit.models.protocol.require import require

EPOCHS = 16
"""Seven epochs give a subtask small files enough to be joined; two later looks list what is left, and delete it."""


class _Watched(World):
    """Remembers what was deleted of the tables."""

    def __init__(self, folder: Path) -> None:
        self.gone: list[tuple[str, str]] = []
        super().__init__(folder)

    def _deleted(self, url: str, key: str) -> None:
        super()._deleted(url, key)
        if sink := self._urls.get(url):
            self.gone.append((sink, key))


def test_files_that_were_joined_go_and_the_model_knows_that_nothing_shows_them(tmp_path: Path) -> None:
    world = _Watched(tmp_path)
    try:
        for _ in range(EPOCHS):
            world.land([1, 2, 3, 4, 5, 6, 7, 8])
            world.clock_jumps(16 * TIMEOUT_MS)
            process = world.epoch(Answers.ALL, insists=True)
            process.go_on()
            require(process.error is None, f"an epoch ends with {process.error!r}")
            world.check()
        published = [
            key for sink, key in world.gone if key in {one for of in world.model.files[sink].values() for one in of}
        ]
        assert published, "what a checkpoint had shown is gone"
        shown = {(sink, key) for sink, of in world.model.files.items() for key in of[max(of)]}
        assert not shown & {*world.gone}, "and a joined file is shown in the place of its parts"
        world.check_stores()
    finally:
        world.close()


def test_a_file_that_a_retained_checkpoint_shows_is_not_to_go(tmp_path: Path) -> None:
    """The model itself: it would not notice a product that deletes too early."""
    world = World(tmp_path)
    try:
        process = world.epoch(Answers.ALL, insists=True)
        process.go_on()
        world.check()
        (number, files), *_ = world.model.files["seen"].items()
        world.stores.watchers.tell(lambda: world.model.deleted("seen", files[0]))
        (broken,) = world.stores.watchers.broken
        assert str(broken) == f"I8: {files[0]} is deleted, and checkpoint {number} shows it"
    finally:
        world.close()
