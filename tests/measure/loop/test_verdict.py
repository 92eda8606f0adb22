"""verdict: the published cases, each rule at its border, and what is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastio.measure import StepShares, verdict
from fastio.measure.loop.verdict import Bound
from fastio.measure.report.page import headline

BATCH = 128
NAMES = ("io_bound", "compute_bound", "launch_bound", "sync_bound", "balanced")
share = st.none() | st.floats(0, 1)


def by_step(step_ms: float, loading: float, training_ms: float) -> dict[str, float]:
    """The rates that a course's step means: the loader alone needs the step, or less where nobody waits for it."""
    assert loading * step_ms + training_ms == pytest.approx(step_ms, rel=0.01)
    return {"io_rate": BATCH / step_ms * 1e3, "train_rate": BATCH / training_ms * 1e3}


# CIFAR-10 PNGs: 134 ms with one worker, DataLoader 73 %. What is left, 36.2 ms, is training, so 39 ms with three
# workers hold 2.8 ms of waiting; "small" after normalising on the GPU is taken as 1 %. A large model: 2722 ms with
# 94.2 % DataLoader and 4.94 % utilisation, then 142.6 ms with 0.23 % and 86.84 %. Small inputs: kernels 37 of 229 ms,
# then 14 of 244 ms by mixed precision, with 77 % in CPU exec.
PUBLISHED: list[tuple[str, Bound, StepShares]] = [
    ("one worker", "io_bound", StepShares(loading=0.73)),
    ("three workers", "balanced", StepShares(loading=2.8 / 39)),
    ("three workers, normalised on the GPU", "compute_bound", StepShares(loading=0.01)),
    ("large model, one worker", "io_bound", StepShares(loading=0.942, device=0.0494)),
    ("large model, repaired loading", "compute_bound", StepShares(loading=0.0023, device=0.8684)),
    ("small inputs, float32", "launch_bound", StepShares(device=37 / 229)),
    ("small inputs, mixed precision", "launch_bound", StepShares(device=14 / 244, cpu=0.77)),
]


@pytest.mark.parametrize(("case", "bound", "shares"), PUBLISHED, ids=[case for case, *_ in PUBLISHED])
def test_published_cases(case: str, bound: Bound, shares: StepShares) -> None:
    """The seven cases of the courses get the names that the courses give them."""
    assert bound == verdict(shares=shares).bound


@pytest.mark.parametrize(
    ("bound", "rates"),
    [
        ("io_bound", by_step(134, 0.73, 36.2)),
        ("balanced", by_step(39, 0.072, 36.2)),
        ("io_bound", by_step(2722, 0.942, 158)),
    ],
)
def test_published_cases_by_rates(bound: Bound, rates: dict[str, float]) -> None:
    """The same names from the two rates alone, where the material gives both."""
    assert bound == verdict(**rates).bound


@pytest.mark.parametrize(
    ("io_rate", "bound"),
    [(89, "io_bound"), (91, "balanced"), (100, "balanced"), (109, "balanced"), (111, "compute_bound")],
)
def test_rates_alone(io_rate: float, bound: Bound) -> None:
    """Within a tenth of each other is balanced."""
    said = verdict(io_rate, 100)

    assert bound == said.bound
    assert said.headroom == pytest.approx(io_rate / 100 - 1)


@pytest.mark.parametrize(
    ("shares", "bound"),
    [
        (StepShares(loading=0.0, device=0.5, cpu=0.45, sync=0.5), "sync_bound"),  # .item() in every step
        (StepShares(loading=0.0, device=0.95, cpu=0.1, sync=0.88), "compute_bound"),  # a fed device, a host that waits
        (StepShares(loading=0.0, device=0.2, cpu=0.95, sync=0.02), "launch_bound"),  # tiny kernels
        (StepShares(loading=0.0, device=0.79, cpu=0.3), "compute_bound"),
        (StepShares(loading=0.05, device=0.3, cpu=0.8), "launch_bound"),
        (StepShares(loading=0.3, device=0.3, cpu=0.8), "io_bound"),
        (StepShares(loading=0.16), "io_bound"),
        (StepShares(loading=0.09), "balanced"),
        (StepShares(loading=0.05), "balanced"),
        (StepShares(loading=0.029), "compute_bound"),
    ],
)
def test_parts_of_a_step(shares: StepShares, bound: Bound) -> None:
    """The device's idle time is put down to whoever holds it up."""
    assert bound == verdict(shares=shares).bound


def test_the_real_loop_outweighs_the_halves() -> None:
    """Both fast alone, and a loop that waits: the CPUs that they share are the loader's limit."""
    said = verdict(500, 100, shares=StepShares(loading=0.4))

    assert said.bound == "io_bound"
    assert "lacks CPUs" in said.evidence[-1]
    assert "pack" not in said.next_step
    assert "busy" in headline(said.bound, said.headroom)
    assert "Training waits for data" == headline("io_bound", -0.5) == headline("io_bound", None)
    assert verdict(500, 100, shares=StepShares(loading=0.0)).bound == "compute_bound"


def test_what_is_said() -> None:
    """Evidence names every figure that came in; the next step fits the name."""
    said = verdict(955, 3536, shares=StepShares(loading=0.73, device=0.2, cpu=0.1, sync=0.0))

    assert "ratio 0.27" in said.evidence[0]
    assert [text.split(" ")[0] for text in said.evidence[1:]] == ["73.0%", "20.0%", "10.0%", "0.0%"]
    assert "pack" in said.next_step
    assert "not measured" in verdict(300, 100).evidence[-1]
    assert str(said).startswith(
        "io_bound, loading alone has 0.27 times the rate of training alone\n  loading alone: 955 samples/s"
    )
    assert str(said).endswith(f"\nnext: {said.next_step}")


@given(
    st.none() | st.tuples(st.floats(0, 1e6), st.floats(1e-3, 1e6)),
    st.builds(StepShares, loading=share, device=share, cpu=share, sync=share),
)
def test_whatever_is_known_gets_a_name(rates: tuple[float, float] | None, shares: StepShares) -> None:
    """Any figures that make sense give one of the five names, or the error that says what is missing."""
    if rates is None and shares.loading is None and shares.device is None:
        with pytest.raises(ValueError, match="both rates"):
            verdict(shares=shares)
        return
    said = verdict(*(rates or (None, None)), shares=shares)

    assert said.bound in NAMES
    if shares.loading is not None:
        assert (said.bound == "io_bound") == (shares.loading > 0.1)


@pytest.mark.parametrize("rates", [(1.0, None), (None, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_half_a_pair_is_refused(rates: tuple[float | None, float | None]) -> None:
    """One rate says nothing, and neither does one below zero."""
    with pytest.raises(ValueError, match="rate"):
        verdict(*rates, shares=StepShares(loading=0.1))


@pytest.mark.parametrize("name", ["loading", "device", "cpu", "sync"])
def test_a_share_is_a_part(name: str) -> None:
    """Percent instead of parts is a mistake that would be easy to make."""
    with pytest.raises(ValueError, match=name):
        StepShares(**{name: 73})
