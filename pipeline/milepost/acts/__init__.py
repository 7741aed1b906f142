"""Acts: the operations on a job that commands and Airflow's form share. Each is declared once."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.acts.act import Act as Act
    from milepost.acts.act import ActContext as ActContext
    from milepost.acts.act import ActPlan as ActPlan
    from milepost.acts.act import ActResult as ActResult
    from milepost.acts.act import ShownPlan as ShownPlan
    from milepost.acts.backfill import BACKFILL as BACKFILL
    from milepost.acts.fields import TAKE_OVER as TAKE_OVER
    from milepost.acts.fields import Field as Field
    from milepost.acts.landing import LAND as LAND
    from milepost.acts.lifecycle import ABORT as ABORT
    from milepost.acts.lifecycle import CANCEL as CANCEL
    from milepost.acts.lifecycle import RESUME as RESUME
    from milepost.acts.lifecycle import START as START
    from milepost.acts.named_rows import row_values as row_values
    from milepost.acts.quarantine import KEY as KEY
    from milepost.acts.quarantine import QUARANTINE as QUARANTINE
    from milepost.acts.quarantine import RELEASE as RELEASE
    from milepost.acts.quarantine import SOURCE as SOURCE
    from milepost.acts.registry import ACTS as ACTS
    from milepost.acts.rollback import ROLLBACK as ROLLBACK
    from milepost.acts.rollback import TO as TO
    from milepost.acts.savepoints import CREATE as CREATE
    from milepost.acts.savepoints import DISPOSE as DISPOSE
    from milepost.acts.savepoints import copy_text as copy_text
    from milepost.acts.upkeep import FSCK as FSCK
    from milepost.acts.upkeep import GC as GC
    from milepost.acts.upkeep import REALIGN as REALIGN
    from milepost.acts.upkeep import VERIFY as VERIFY
    from milepost.acts.why import NOT_PROVEN as NOT_PROVEN
    from milepost.acts.why import TRACED_AT as TRACED_AT
    from milepost.acts.why import TRACED_SINK as TRACED_SINK
    from milepost.acts.why import TRACED_VALUES as TRACED_VALUES
    from milepost.acts.why import WHY as WHY
else:
    __getattr__, __dir__ = lazy_exports(__name__)
