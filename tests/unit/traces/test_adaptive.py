"""Batch sizes that adapt: how long jobs of Shockwave's traces run, and what they say of it on their way."""

from __future__ import annotations

import pytest

from topmast.traces.formats.adaptive import Run, run_of

EACH = 10.0
"""Steps a second, whatever the batch: so an epoch takes as long as it has steps."""


def _run(name: str, mode: str, gpus: int, epochs: float, per_epoch: int) -> Run:
    return run_of(name, mode, gpus, epochs * per_epoch, lambda _: EACH)


@pytest.mark.parametrize(
    ("story", "name", "mode", "gpus", "epochs", "lengths"),
    [
        (
            "the noise of the gradient lets the batch double at epochs 21, 31 and 51",
            "ResNet-18 (batch size 32)", "gns", 1, 60, [(21, 1_563), (10, 782), (20, 391), (9, 196)],
        ),
        (
            "on eight GPUs nothing was measured, so nothing adapts",
            "ResNet-18 (batch size 32)", "gns", 8, 60, [(60, 1_563)],
        ),
        (
            "the largest batch of a language model has 80 sequences",
            "LM (batch size 40)", "gns", 2, 20, [(11, 1_492), (9, 746)],
        ),
        (
            "the first three tenths are critical, then the largest batch",
            "LM (batch size 20)", "accordion", 1, 100, [(31, 2_984), (69, 746)],
        ),
        (
            "ten of thirty epochs are critical for ResNet-50",
            "ResNet-50 (batch size 64)", "accordion", 4, 100,
            [(40, 1_563), (20, 782), (10, 1_563), (20, 782), (10, 1_563)],
        ),
        ("a job that ends before adapts never", "LM (batch size 20)", "gns", 1, 9.5, [(9.5, 2_984)]),
        ("the last epoch may be a part", "LM (batch size 40)", "gns", 1, 12.5, [(11, 1_492), (1.5, 746)]),
        ("static jobs stay as they are", "LM (batch size 20)", "static", 1, 100, [(100, 2_984)]),
        ("so does a network without batches", "CycleGAN", "gns", 1, 3, [(3, 100)]),
    ],
)  # fmt: skip
def test_a_run_is_the_sum_of_its_epochs(
    story: str, name: str, mode: str, gpus: int, epochs: float, lengths: list[tuple[float, int]]
) -> None:
    """Each as long as its batch makes it; the told time is that of the first batch."""
    run = _run(name, mode, gpus, epochs, lengths[0][1])
    assert run.duration_s == pytest.approx(sum(n * steps for n, steps in lengths) / EACH)
    assert run.told_s == pytest.approx(epochs * lengths[0][1] / EACH)
    assert len(run.later) == len(lengths) - 1


def test_at_each_change_the_rest_is_expected_at_the_new_speed() -> None:
    """After 21 epochs of 156.3 s the other 39 take 78.2 s, as far as one knows."""
    run = _run("ResNet-18 (batch size 32)", "gns", 1, 60, 1_563)
    at_s = 21 * 156.3
    assert run.later[0] == pytest.approx((at_s, at_s + 39 * 78.2))
    assert run.later[-1][1] == pytest.approx(run.duration_s)


def test_a_batch_that_was_not_measured_changes_nothing() -> None:
    """As in the public code: the job goes on as it does."""
    rates = {"LM (batch size 20)": 10.0, "LM (batch size 80)": 5.0}
    run = run_of("LM (batch size 20)", "gns", 1, 2_984 * 50, rates.get)
    assert run.duration_s == pytest.approx((41 * 2_984 / 10.0) + 9 * 746 / 5.0)
    assert [round(at_s) for at_s, _ in run.later] == [round(41 * 298.4)]
