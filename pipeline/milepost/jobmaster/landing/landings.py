"""Use cases of landed sources: land the newest rows of the external systems, and read what was landed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from milepost.errors import CheckpointError, InvalidRequest, NotFound
from milepost.extras import require
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.use_case import use_case
from milepost.jobmaster.landing.lander import Lander, Landing
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobspec.job import LandedSourceSpec, NexmarkSourceSpec, PythonSourceSpec
from milepost.language import to_arrow
from milepost.operators.process import read_function
from milepost.sources.landed import LandedSource, open_nexmark_source, open_python_source
from milepost.storage.log import SourceLog

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FailedLanding:
    """A source that was not landed, and why. What was landed before is as it was.

    Attributes:
        error: name of the error's class.
    """

    source: str
    error: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class LandingReport:
    """What a call landed, in the order of the sources' names.

    Attributes:
        failed: sources that failed. The others were landed all the same.
    """

    landed: tuple[Landing, ...]
    failed: tuple[FailedLanding, ...]


class Landings:
    """The landed sources of one job."""

    def __init__(self, context: JobContext, leadership: Leadership) -> None:
        self._context, self._leadership = context, leadership

    @use_case
    def land(
        self, sources: Sequence[str] | None = None, progress: Callable[[str], None] | None = None
    ) -> LandingReport:
        """Append the newest rows of each source to its log. Creates the job if it has never run.

        Args:
            sources: names of landed sources; None: all of them.
            progress: called with the source that is landed next.
        Raises:
            NotFound: the spec has no such source. InvalidRequest: it is not landed.
        """
        names = sorted(self._context.spec.landed) if sources is None else list(sources)
        for name in names:
            self._require_landed(name)
        landed: list[Landing] = []
        failed: list[FailedLanding] = []
        if names:
            self._leadership.head_or_create()
        for name in names:
            if progress is not None:
                progress(name)
            try:
                landed.append(self._land(name))
            except CheckpointError as error:  # one source that does not answer must not keep the others back
                _LOG.warning("source %s was not landed: %s", name, error.message)
                failed.append(FailedLanding(name, type(error).__name__, error.message, error.hint))
        return LandingReport(tuple(landed), tuple(failed))

    def _land(self, name: str) -> Landing:
        context = self._context
        spec = context.spec.landed[name]
        return Lander(SourceLog(context.store, name), open_source(context, name, spec), context.identity).land()

    def _require_landed(self, name: str) -> None:
        spec = self._context.spec
        if name in spec.landed:
            return
        known = ", ".join(sorted(spec.landed)) or "none"
        if name in spec.sources:
            raise InvalidRequest(
                f"job {spec.name}: source {name} is files, which epochs read where they are. Nothing was landed.",
                hint=f"landed sources of this job: {known}",
                source=name,
            )
        raise NotFound(f"job {spec.name} has no source {name}; landed sources: {known}", source=name)


def open_source(context: JobContext, name: str, spec: LandedSourceSpec) -> LandedSource:
    """Open the external system of a source for one landing. Raises: InvalidRequest, SourceUnreachable."""
    schema = pa.schema([(column, to_arrow(type_)) for column, type_ in spec.columns.items()])
    if isinstance(spec, NexmarkSourceSpec):
        return open_nexmark_source(
            spec.identity,
            schema,
            events=spec.events,
            seed=spec.seed,
            events_per_second=spec.events_per_second,
            total=spec.total,
            max_rows=spec.land.max_rows,
        )
    assert isinstance(spec, PythonSourceSpec), spec
    require("spark", f"source {name} (format: python)")
    code = read_function(name, spec.source, context.job.module_dir, owner=f"source {name}")
    return open_python_source(name, code, spec.options, schema)
