"""The Hypothesis profiles of the suite: fast for `make test`, deep for `make test-all`, mutants for `make mutants`.

A profile sets how many examples a property is tried on, and how many steps a state machine takes. A test names no
number of its own. One that is cheap or costly takes a share of the profile's examples instead:

    @profiles.examples(share=0.4)     # 6 examples under fast, 80 under deep
    @given(st.integers())
    def test_a_property(number: int) -> None: ...

`pytest --hypothesis-profile=deep` and `MILEPOST_PROFILE=deep` choose a profile.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, settings

VARIABLE = "MILEPOST_PROFILE"
FAST = "fast"
DEEP = "deep"
MUTANTS = "mutants"
"""As many examples as deep. That a test fails is all that matters of a mutant, so no example is made smaller."""

LEAST_EXAMPLES = 3
"""Hypothesis draws the simplest example first. A smaller share would try nothing else."""


def register() -> None:
    """Register the profiles. How fast a machine draws an example says nothing about the code under test."""
    any_machine = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(FAST, any_machine, max_examples=15, stateful_step_count=15)
    deep = settings(any_machine, max_examples=200, stateful_step_count=50)
    settings.register_profile(DEEP, deep)
    settings.register_profile(MUTANTS, deep, phases=[Phase.explicit, Phase.generate])


def examples(share: float = 1.0, **others: Any) -> settings:
    """Return the settings of a property that is tried on a share of the current profile's examples.

    Args:
        share: 2.0 is for a property that costs microseconds, 0.1 for one that runs a job.
        others: further settings, such as `phases` and `suppress_health_check`.
    """
    return settings(max_examples=max(LEAST_EXAMPLES, round(share * settings.default.max_examples)), **others)
