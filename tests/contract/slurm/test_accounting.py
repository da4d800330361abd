"""A site whose Slurm enforces accounts by slurmdbd, and what is asked for each tenant."""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.contract.slurm.test_launcher import RUNNER, Bench, make
from tests.support.slurmdb import AccountedCluster
from tests.support.slurmlab import missing_accounting, slurm_cluster
from topmast.adapters.engines.far.launcher import Refused
from topmast.adapters.engines.far.slurm import launcher

pytestmark = pytest.mark.slow
USER = "nobody"
OURS: dict[str, Any] = {
    "account": {"vision": "vis", "speech": "spe", "": "nowhere"},
    "qos": {"vision": "fast"},
    "wckey": {"vision": "imagenet", "speech": "words"},
}


@pytest.fixture(scope="module")
def site() -> Iterator[AccountedCluster]:
    """Two accounts: only one of them may use the fast quality of service."""
    if reason := missing_accounting():
        pytest.skip(reason)
    with slurm_cluster("acct", AccountedCluster, nodes=1) as cluster:
        assert isinstance(cluster, AccountedCluster)
        cluster.account("add", "qos", "fast")
        cluster.account("add", "qos", "brief", "maxwall=10", "flags=denyonlimit")
        cluster.account("add", "qos", "none", "maxsubmitjobsperuser=0", "flags=denyonlimit")
        for account, key, qos in (
            ("vis", "imagenet", "normal,fast"),
            ("spe", "words", "normal,brief,none"),
        ):
            cluster.account("add", "account", account)
            user = (f"account={account}", f"qos={qos}", "defaultqos=normal", f"wckeys={key}")
            cluster.account("add", "user", USER, *user)
        yield cluster


@pytest.fixture
def bench(
    site: AccountedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    """A launcher that runs Slurm's commands as a user without any rights: root may all."""
    monkeypatch.setattr(launcher, "_runner", lambda: RUNNER)
    (bin := tmp_path / "bin").mkdir()
    for name in ("sbatch", "squeue", "sinfo", "scontrol", "scancel"):
        be = "exec setpriv --reuid=65534 --regid=65534 --clear-groups"
        (bin / name).write_text(f'#!/bin/sh\n{be} /usr/bin/{name} "$@"\n')
        (bin / name).chmod(0o755)
    notes = Path(tempfile.mkdtemp(dir=site.folder))
    notes.chmod(0o777)
    made = make(site, tmp_path, bin=str(bin), python="/usr/bin/python3", **OURS)
    yield Bench(site, notes, made)
    made.close()


def _settled(site: AccountedCluster, asked: tuple[str, ...]) -> str:
    """What the books say of a job; empty as long as they do not know all."""
    said = site.run(*asked).strip()
    return "" if "Unknown" in said else said


def test_each_tenant_has_its_account_qos_and_key(bench: Bench, site: AccountedCluster) -> None:
    """The site's own books say so, of jobs that ran."""
    for tenant, want in (("vision", "vis|fast|imagenet"), ("speech", "spe|normal|words")):
        part = bench.part(0, tenant=tenant)
        running = bench.begins(part)
        asked = ("sacct", "-X", "-n", "-P", "-a", "-j", running.id, "-o", "Account,QOS,WCKey")
        # What is kept before the controller has told all of the job has `Unknown` in it.
        settled = partial(_settled, site, asked)
        site.until(settled, "nothing in the books")
        assert settled() == want
        bench.launcher.cancel(running, 0.0)
        bench.ends(part)


@pytest.mark.parametrize(("qos", "everyone"), [("brief", False), ("none", True)])
def test_what_one_job_asks_too_much_closes_no_cluster(
    bench: Bench, qos: str, everyone: bool
) -> None:
    """Slurm has the same words for a job that is too long, and for a limit that no job passes."""
    given: dict[str, Any] = {"bin": bench.launcher._options.bin, "python": "/usr/bin/python3"}
    ours: dict[str, Any] = {
        "account": {"": "spe"},
        "wckey": {"": "words"},
        "qos": {"": qos},
        "time_limit": "5",
    }
    limited = make(bench.lab, bench.folder, **given, **ours)
    with pytest.raises(Refused, match=r"(?i)accounting/qos policy.*ask for less") as refused:
        limited.submit(bench.part(0, tenant="any", limit_s=3600.0))
    assert refused.value.everyone is everyone
    limited.close()


@pytest.mark.parametrize(
    ("story", "tenant", "options", "want", "everyone"),
    [
        ("an account that is not there", "other", {}, "(?i)account.*option `account`", True),
        ("an account of other users", "vision", {"account": {"vision": "root"}},
         "(?i)account.*option `account`", False),
        ("a quality of service of another account", "speech", {"qos": {"": "fast"}},
         "(?i)qos.*option `qos`", True),
        ("a key of nothing", "speech", {"wckey": {"": "wrong"}}, "(?i)wckey.*option `wckey`", True),
    ],
)  # fmt: skip
def test_what_accounting_refuses_is_refused_with_the_option(
    bench: Bench, story: str, tenant: str, options: dict[str, Any], want: str, everyone: bool
) -> None:
    """Whether it is a matter of one tenant, or the cluster takes nothing."""
    given = {"bin": bench.launcher._options.bin, "python": "/usr/bin/python3", **OURS, **options}
    refusing = make(bench.lab, bench.folder, **given)
    with pytest.raises(Refused, match=want) as refused:
        refusing.submit(bench.part(0, tenant=tenant))
    assert refused.value.everyone is everyone, story
    refusing.close()
