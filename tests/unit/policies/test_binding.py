"""Where each binding sends a job: tables of small worlds of four clusters."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.support.build import profile
from topmast.model.errors import InvalidInput
from topmast.policies.base import BindView
from topmast.policies.options import BindOptions, WhenBlocked
from topmast.policies.registry import BINDINGS, load_profile, policies_of


@dataclass(frozen=True)
class Case:
    """Clusters 0 and 1 are in one region, 2 and 3 in another; all have 64 GPUs but the last, 128."""

    story: str
    policy: str
    want: int
    home: tuple[int, ...] = (0, 1)
    data: tuple[int, ...] = (0, 1, 2, 3)
    load: tuple[float, ...] = (0.9, 0.5, 0.1, 0.3)
    times: int = 0
    bound: int = -1
    options: dict[str, object] = field(default_factory=dict)

    def view(self, number: int = 1) -> BindView:
        """What the policy sees."""
        rows = np.arange(4)
        return BindView(
            number=number,
            times=self.times,
            bound=self.bound,
            region=np.array([0, 0, 1, 1]),
            at_home=np.isin(rows, self.home),
            has_data=np.isin(rows, self.data),
            gpus=np.array([64.0, 64.0, 64.0, 128.0]),
            load=np.array(self.load),
        )


CASES = [
    Case("by hand: home, however full", "home", 0, load=(9.0, 9.0, 0.0, 0.0)),
    Case("by hand: home, though its data is elsewhere", "home", 2, home=(2, 3), data=(0,)),
    Case("home could never hold it: a large cluster with its data", "home", 3, home=()),
    Case("nor has anybody its data: the largest", "home", 3, home=(), data=()),
    Case("a project runs where its data is", "near-data", 2, data=(2,)),
    Case("which is at home, if it is there as well", "near-data", 0),
    Case("data nowhere: at home", "near-data", 0, data=()),
    Case("the least loaded of all", "least-loaded", 2),
    Case("of those with the data only", "least-loaded", 1, data=(0, 1)),
    Case("of all, where nobody has the data", "least-loaded", 2, data=()),
    Case("the first of those equally loaded", "least-loaded", 1, load=(0.9, 0.2, 0.2, 0.2)),
    Case("more choices than clusters are all of them", "least-loaded", 2, options={"choices": 9}),
    Case("sub-cluster: at home first, where there is less", "spill-over", 1),
    Case("waited long: the least loaded other", "spill-over", 2, times=1, bound=1),
    Case("and then another again", "spill-over", 3, times=2, bound=2),
    Case("with the data, if one of the others has it", "spill-over", 0, times=1, bound=1, data=(0, 1)),
    Case("without it, if none has", "spill-over", 2, times=1, bound=1, data=(1,)),
    Case("no home: the least loaded", "spill-over", 2, home=()),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.story)
def test_where_a_job_is_sent(case: Case) -> None:
    """Each policy keeps its promise."""
    options = BindOptions(policy=case.policy, **case.options)  # type: ignore[arg-type]
    bind = policies_of(profile(bind=options)).bind
    assert bind is not None
    assert bind.choose(case.view()) == case.want


def test_two_choices_are_drawn_for_each_job() -> None:
    """The better of two, others for other jobs, the same for the same job."""
    bind = BINDINGS["least-loaded"](profile(bind=BindOptions("least-loaded", choices=2)))
    case = Case("", "", 0)
    chosen = [bind.choose(case.view(number)) for number in range(200)]
    assert chosen == [bind.choose(case.view(number)) for number in range(200)]
    assert set(chosen) == {1, 2, 3}, "the fullest is never the better of two"
    assert chosen.count(2) > chosen.count(3) > chosen.count(1)


@pytest.mark.parametrize(
    ("name", "options", "field"),
    [
        ("manual", {"bind.policy": "nowhere"}, "profile.bind.policy"),
        ("manual", {"when_blocked": "stop"}, "profile.when_blocked"),
        ("federated", {"bind.choices": "0"}, "profile.bind.choices"),
        ("hydra", {"bind.patience_s": "0"}, "profile.bind.patience_s"),
        ("hydra", {"bind.signal_s": "-1"}, "--set bind.signal_s"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    name: str, options: dict[str, str], field: str
) -> None:
    """With the option that is wrong."""
    with pytest.raises(InvalidInput) as told:
        load_profile(name, options)
    assert told.value.field == field


def test_mast_binds_nobody_early() -> None:
    """One queue for all regions."""
    assert policies_of(load_profile("mast")).bind is None
    assert load_profile("mast").when_blocked is WhenBlocked.SKIP
