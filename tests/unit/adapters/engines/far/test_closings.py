"""What the log says of far clusters that close and open."""

from structlog.testing import capture_logs

from topmast.adapters.engines.closings import Closings
from topmast.model import messages as m


def test_the_log_says_when_a_cluster_closes_and_opens() -> None:
    """Once each, with the reason of most; single hosts are no matter of it, and all news goes on."""
    told: list[m.Message] = []
    news = [
        m.HostClosed("a", "drained"), m.HostClosed("b", "it hangs"), m.HostClosed("a", "it hangs"),
        m.HostOpened("b"), m.HostOpened("a"), m.HostClosed("a", "drained"), m.HostUp("a"),
    ]  # fmt: skip
    hosts = ["a", "b"]
    closings = Closings("hpc", lambda: hosts, told.append)
    with capture_logs() as logs:
        for one in news:
            closings.post(one)
    assert told == news
    assert [(line["event"], line["cluster"], line.get("why")) for line in logs] == [
        ("a cluster is closed to new work", "hpc", "drained"),
        ("a cluster is open to new work again", "hpc", None),
    ]
    hosts.remove("b")  # the hosts of a cluster change, too
    with capture_logs() as logs:
        closings.post(m.HostClosed("a", "it hangs"))
    assert [line["why"] for line in logs] == ["it hangs"]
