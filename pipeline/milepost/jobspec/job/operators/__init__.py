"""The keys of each kind of operator."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.job.operators.asof import AsofOperator as AsofOperator
    from milepost.jobspec.job.operators.join import JoinOperator as JoinOperator
    from milepost.jobspec.job.operators.join import PairedOperator as PairedOperator
    from milepost.jobspec.job.operators.latest import LatestOperator as LatestOperator
    from milepost.jobspec.job.operators.lookup import LookupOperator as LookupOperator
    from milepost.jobspec.job.operators.process import ProcessOperator as ProcessOperator
    from milepost.jobspec.job.operators.top import TopOperator as TopOperator
    from milepost.jobspec.job.operators.window import SlidingWindows as SlidingWindows
    from milepost.jobspec.job.operators.window import WindowOperator as WindowOperator
    from milepost.jobspec.job.operators.window import Windows as Windows
else:
    __getattr__, __dir__ = lazy_exports(__name__)
