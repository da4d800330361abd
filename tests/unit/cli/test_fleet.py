"""What there is: the fleet, datasets, usage; and hosts put aside."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.unit.cli.conftest import Call, Screen
from tests.unit.client.fake import Answer, FakeServer, job, page, problem
from topmast.cli.text import moment
from topmast.model import views as v
from topmast.model.act_views import (
    ClusterActed,
    HostEffect,
    HostsActed,
    QuotaActed,
    ReservationView,
)
from topmast.model.budget import BudgetView
from topmast.model.plan_views import (
    CapacityPlanView,
    CapacityRow,
    DataPlanView,
    HostMoveView,
)
from topmast.model.timed_quota import TimedQuota


def host(name: str, state: str = "healthy", **changes: Any) -> v.HostView:
    whole = v.HostView(
        name, "east", "east-1", state, "H100", 8, 4, "dc1", "p1", "r1", ("j1", "j2"), 77
    )
    return msgspec.structs.replace(whole, **changes)


REGIONS = [
    v.RegionView("east", 2, 8, 64, 12.5, 8, 7, 1.5, 3, 150_000_000_000, 10**14, 9),
    v.RegionView("west", 1, 4, 32, 32, 0, 0, 0, 0, 0, None, 9),
]
CLUSTERS = [
    v.ClusterView("east-1", "east", "local", 4, 3, 32, 4, 5),
    v.ClusterView("west-1", "west", "local", 4, 4, 32, 32, 0),
]
HOSTS = [host("h0"), host("h1", "down", region="west", cluster="west-1", jobs=())]
GPUS = [v.GpuView("east", "east-1", "H100", 32, 4, 20, 8)]
TENANTS = [
    v.TenantView("vision", "H100", 16, 20, 4, 0, 8, 1),
    v.TenantView("default", "H100", None, 0.5, 0, 0, 0, 2),
]
DATASETS = [
    v.DatasetView(
        "imagenet", 150_000_000_000, "data/imagenet", ("east", "west"), 2,
        (v.ReplicaView("east", "complete"), v.ReplicaView("west", "copying")),
        (v.CopyView("c1", "imagenet", "east", "west", 100, 25, "j1", 1e9),),
    )
]  # fmt: skip

LISTINGS = [
    ("regions", REGIONS, "east 2 8 64 12.5 8 7 1.50 3 150GB of 100TB"),
    ("clusters", CLUSTERS, "east-1 east local 4 3 32 4 5 open"),
    ("hosts", HOSTS, "h0 east east-1 healthy H100 4 8 dc1 p1 r1 j1,j2"),
    ("gpus", GPUS, "H100 east east-1 32 4 20 8"),
    ("tenants", TENANTS, "vision H100 16 20 4 0 8 1"),
    ("datasets", DATASETS, "imagenet 150GB east,west (copying) 2 east,west east->west 25% data/"),
]


@pytest.mark.parametrize(("name", "rows", "want"), LISTINGS, ids=[row[0] for row in LISTINGS])
def test_listings(name: str, rows: list[Any], want: str, server: FakeServer, call: Call) -> None:
    """A table with a line for each, or the document of the REST interface."""
    server.on("GET", f"/{name}", {name: rows})
    called = call(name)
    assert (called.code, called.err) == (0, "")
    assert called.out.count("\n") == 1 + len(rows)
    assert " ".join(called.out.splitlines()[1].split()).startswith(want)
    assert call(name, "--json").document == json.loads(msgspec.json.encode({name: rows}))
    server.on("GET", f"/{name}", {name: []})
    assert call(name).out.count("\n") == 1


def test_a_host_that_is_put_aside_says_until_when(server: FakeServer, call: Call) -> None:
    """With a reason and without; one that is put aside for good says nothing of it."""
    rows = [
        host("h0", "cordoned", closed="cordoned by ada: new fans", until_s=1e9),
        host("h1", "draining", until_s=1e9), host("h2", "cordoned"),
    ]  # fmt: skip
    server.on("GET", "/hosts", {"hosts": rows})
    called = call("hosts")
    assert f"h0: cordoned by ada: new fans, until {moment(1e9)}" in called.out
    assert f"h1 is draining, until {moment(1e9)}" in called.out
    assert called.out.count("until") == 2


def test_a_host_that_is_suspect_says_why_and_until_when(server: FakeServer, call: Call) -> None:
    suspect = host("h0", "suspect", closed="an attempt was lost here", until_s=1e9)
    server.on("GET", "/hosts", {"hosts": [suspect]})
    said = f"h0 is suspect: an attempt was lost here, until {moment(1e9)}"
    assert call("hosts").out.splitlines()[-1] == said


def test_a_cluster_that_takes_no_new_work_says_why(server: FakeServer, call: Call) -> None:
    """One reason if it is closed as a whole; else where the reasons are."""
    partly = v.ClusterView(
        "west-1", "west", "slurm", 4, 3, 32, 32, 0, "partly", "", {"w0": "drained"}, ("images",)
    )
    shut = v.ClusterView("west-2", "west", "slurm", 1, 0, 8, 0, 0, "closed", "hangs", {"w4": "x"})
    server.on("GET", "/clusters", {"clusters": [partly, shut]})
    lines = call("clusters").out.splitlines()
    assert lines[1].endswith("  partly  images")
    assert lines[3:] == [
        "1 host of west-1 takes no new work: `topmast hosts --cluster west-1`",
        "west-2 is closed: hangs",
    ]


def test_unlimited_is_said(server: FakeServer, call: Call) -> None:
    """A tenant without a quota, a region without a limit."""
    server.on("GET", "/tenants", {"tenants": TENANTS})
    assert "default  H100  unlimited   0.5" in call("tenants").out
    server.on("GET", "/regions", {"regions": REGIONS})
    assert call("regions").out.splitlines()[2].endswith(" 0B")


def test_a_quota_of_a_tenant_above_is_said(server: FakeServer, call: Call) -> None:
    """It limits the tenants below it that state none, also by models of which it has none."""

    def row(name: str, model: str, nominal: float | None, parent: str | None) -> v.TenantView:
        return v.TenantView(name, model, nominal, 0, 0, 0, 0, 1.0, parent)

    rows = [
        row("product", "H100", 16.0, "all"), row("all", "", None, None),
        row("ads", "H100", None, "product"), row("ads", "A100", None, "product"),
        row("video", "H100", None, "ads"), row("new", "", None, "product"),
        row("mine", "H100", None, "hidden"), row("free", "H100", None, "all"),
    ]  # fmt: skip
    server.on("GET", "/tenants", {"tenants": rows})
    lines = [" ".join(line.split()) for line in call("tenants").out.splitlines()[1:]]
    said = [line.split(" 0 0 0 0 ")[0] for line in lines]
    assert said == [
        "product H100 16", "all - unlimited", "ads H100 16 of product", "ads A100 0 of product",
        "video H100 16 of product", "new - of product", "mine H100 of hidden", "free H100 unlimited",
    ]  # fmt: skip
    server.on(
        "POST", "/tenants/ads/quota", QuotaActed("ads", True, {}, {"H100": 8}, 1.0, 2.0, "", 0, 0)
    )
    told = call("tenants", "quota", "ads", "--gpus", "H100=8", "--for", "3d", "--dry-run").out
    assert told.splitlines()[1].split() == ["H100", "16", "of", "product", "8"]


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["hosts", "--region", "west"], ["h1"]),
        (["hosts", "--cluster", "east-1"], ["h0"]),
        (["hosts", "--cluster", "east-1", "--region", "west"], []),
        (["hosts", "-l", "cluster=west-1,gpu=H100"], ["h1"]),
        (["hosts", "--selector", "state=down", "--region", "east"], []),
        (["hosts", "-l", "state=cordoned"], []),
        (["hosts", "-l", "host=x*"], []),
        (["clusters", "--region", "east"], ["east-1"]),
        (["clusters", "-l", "region=w*,engine=local"], ["west-1"]),
        (["gpus", "--region", "west"], []),
    ],
)
def test_listings_can_be_narrowed(
    arguments: list[str], want: list[str], server: FakeServer, call: Call
) -> None:
    """To a region or a cluster."""
    server.on("GET", "/hosts", {"hosts": HOSTS}).on("GET", "/gpus", {"gpus": GPUS})
    server.on("GET", "/clusters", {"clusters": CLUSTERS})
    server.on("GET", "/regions", {"regions": REGIONS})
    rows = call(*arguments, "--json").document[arguments[0]]
    assert [row["name"] for row in rows] == want


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["hosts", "--region", "eats"], "no region 'eats' (did you mean 'east'?)"),
        (["hosts", "--cluster", "easst-1"], "no cluster 'easst-1' (did you mean 'east-1'?)"),
        (["clusters", "--region", "nowhere"], "no region 'nowhere' (one of: east, west)"),
        (["gpus", "--region", "eats"], "no region 'eats' (did you mean 'east'?)"),
    ],
)
def test_a_name_of_nothing_is_no_empty_table(
    arguments: list[str], want: str, server: FakeServer, call: Call
) -> None:
    """Who mistypes a name is told, with the nearest that there is."""
    server.on("GET", "/hosts", {"hosts": HOSTS}).on("GET", "/gpus", {"gpus": GPUS})
    server.on("GET", "/clusters", {"clusters": CLUSTERS}).on(
        "GET", "/regions", {"regions": REGIONS}
    )
    called = call(*arguments)
    assert (called.code, called.error) == (1, f"topmast: {want}")


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["hosts", "-l", "cluster=easst-1"],
         "selects no host: none has cluster=easst-1 (did you mean 'east-1'?)"),
        (["hosts", "-l", "state=dwon"],
         "selects no host: none has state=dwon (did you mean 'down'?)"),
        (["clusters", "-l", "regoin=east"], "unknown key 'regoin' (did you mean 'region'?)"),
    ],
)  # fmt: skip
def test_a_selector_that_nothing_can_match_is_no_empty_table(
    arguments: list[str], want: str, server: FakeServer, call: Call
) -> None:
    """As for acts; but what could match is listed, even if nothing does."""
    server.on("GET", "/hosts", {"hosts": HOSTS}).on("GET", "/clusters", {"clusters": CLUSTERS})
    called = call(*arguments)
    assert (called.code, called.error) == (2, f"topmast: --selector: {want}")


def test_the_story_of_a_host(server: FakeServer, call: Call) -> None:
    """Who put it aside, and when; or that there is nothing to tell."""
    line = v.HistoryView(
        1e9, "host-cordoned", "h0 was cordoned by ann", {"host": "h0", "by": "ann"}
    )
    server.on("GET", "/hosts/h0/story", v.HostStory(HOSTS[0], (line,)))
    out = call("hosts", "--history", "h0").out
    assert "h0 was cordoned by ann" in out
    assert call("hosts", "--history", "h0", "--json").document["history"][0]["kind"] == (
        "host-cordoned"
    )
    server.on("GET", "/hosts/h0/story", v.HostStory(HOSTS[0], ()))
    assert "nothing has happened to it" in call("hosts", "--history", "h0").out
    server.on("GET", "/hosts/h0/story", v.HostStory(HOSTS[0], (), known=False))
    assert "not known here" in call("hosts", "--history", "h0").out


def acted(verb: str, *hosts: v.HostView, dry_run: bool = False, **more: Any) -> HostsActed:
    """What a server says of an act on hosts."""
    effects = tuple(HostEffect(one.name, "done") for one in hosts)
    return HostsActed(verb, dry_run, hosts, effects, 8.0 * len(hosts), ("j1", "j2"), **more)


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain"])
def test_hosts_are_put_aside(verb: str, server: FakeServer, call: Call) -> None:
    """Several in one request."""
    hosts = [host("h0", "cordoned"), host("h1", "cordoned")]
    server.on("GET", "/hosts", {"hosts": hosts})
    server.on("POST", f"/hosts/{verb}", acted(verb, *hosts))
    called = call(verb, "h0", "h1", "--reason", "a new disk")
    assert (called.code, called.err) == (0, "")
    assert [line.split()[0] for line in called.out.splitlines()[1:]] == ["h0", "h1"]
    (order,) = server.asked("POST", f"/hosts/{verb}")
    assert (order.document["hosts"], order.document["reason"]) == (["h0", "h1"], "a new disk")
    assert call(verb, "h0", "--json").document["hosts"][0]["state"] == "cordoned"


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain"])
def test_a_selector_stands_for_hosts(verb: str, server: FakeServer, call: Call) -> None:
    """The server finds them; a dry run tells what it would concern."""
    found = acted(verb, host("h0"), dry_run=True, drains=(v.DrainView("h0", "east", "x", ()),))
    server.on("POST", f"/hosts/{verb}", found)
    called = call(verb, "-l", "rack=r1", "--dry-run")
    assert called.code == 0
    (order,) = server.asked("POST", f"/hosts/{verb}")
    assert (order.document["selector"], order.document["dry_run"]) == ("rack=r1", True)
    want = (
        "nothing runs on h0" if verb == "drain" else "1 host would change, with 8 GPUs and 2 jobs"
    )
    assert (want in called.out, called.err) == (True, "nothing was done\n")
    assert call(verb, "h0", "-l", "rack=r1").code == 2
    assert call(verb).code == 2


def test_hosts_that_an_act_does_not_change_are_named(server: FakeServer, call: Call) -> None:
    """A host that was in service is no host that was brought back."""
    hosts = tuple(host(name) for name in ("h0", "h1", "h2"))
    of = zip(hosts, ("done", "unchanged", "unchanged"), strict=True)
    effects = tuple(HostEffect(one.name, effect) for one, effect in of)
    server.on("GET", "/hosts", {"hosts": hosts})
    for dry_run, more in ((True, ["--dry-run"]), (False, [])):
        found = HostsActed("uncordon", dry_run, hosts, effects, 8.0, ())
        server.on("POST", "/hosts/uncordon", found)
        out = call("uncordon", "h0", "h1", "h2", *more).out
        assert out.splitlines()[4] == "h1,h2 are unchanged"
    one = HostsActed("uncordon", False, hosts[1:2], effects[1:2], 8.0, ())
    server.on("POST", "/hosts/uncordon", one)
    assert call("uncordon", "h1").out.endswith("h1 is unchanged\n")


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain"])
def test_a_misspelt_host_changes_none(verb: str, server: FakeServer, call: Call) -> None:
    """Wherever it stands among the names; the error names each such host, and what is probably meant."""
    hosts = [host(f"west-1-{number}") for number in range(4)]
    server.on("GET", "/hosts", {"hosts": hosts})
    called = call(verb, "west-1-1", "west-1-O")
    assert (called.code, called.out) == (1, "")
    assert called.error == "topmast: no host 'west-1-O' (did you mean 'west-1-0'?)"
    called = call(verb, "x", "west-1-2", "y")
    assert (called.code, called.out) == (1, "")
    known = "(one of: west-1-0, west-1-1, west-1-2, west-1-3)"
    assert called.err.splitlines() == [f"topmast: no host '{name}' {known}" for name in "xy"]
    assert {request.method for request in server.requests} == {"GET"}


def test_why_a_host_is_closed_is_broken_between_words_on_a_terminal(
    server: FakeServer, terminal: Callable[..., Screen]
) -> None:
    """A long reason does not run over the edge."""
    why = "root cordoned it: a fan is loud, and people come for it on Tuesday before the hall opens"
    server.on("GET", "/hosts", {"hosts": [host("h0", "cordoned", closed=why)]})
    lines = terminal("hosts", columns=60).text.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("h0: root"))
    assert max(len(line) for line in lines[first:]) <= 60
    assert " ".join(" ".join(lines[first:]).split()) == f"h0: {why}"


WHY = (
    "this machine is in use as host gpu-node-east-0001 already: two addresses lead to it, or "
    "another Topmast uses it. Take gpu-node-east-0002 or gpu-node-east-0001 out of its fleet file"
)


@pytest.mark.parametrize("command", ["clusters", "hosts", "queue"])
def test_long_reasons_and_names_fit_80_columns(
    command: str, server: FakeServer, terminal: Callable[..., Screen]
) -> None:
    """Each reason is there whole, and broken between words."""
    name, place = "gpu-node-east-0002", {"region": "europe-west-4", "cluster": "metal-hall-2"}
    shut = v.ClusterView(
        "metal-hall-2", "europe-west-4", "kubernetes", 1000, 998, 8000, 4000, 500, "closed", WHY,
        {name: WHY}, capabilities=("exact-slots", "exec", "pairs", "shares", "suspend"),
    )  # fmt: skip
    one = host(name, "down", **place, closed=WHY, datacenter="datacenter-hall-2", rack="rack-17-b")
    waits = job("j1234567", name="resnet-50-baseline-rerun", reason="InsufficientCapacity")
    server.on("GET", "/clusters", {"clusters": [shut]}).on("GET", "/hosts", {"hosts": [one]})
    server.on("GET", "/jobs", page(waits))
    lines = terminal(command, columns=80, NO_COLOR="1").text.replace("\r", "").splitlines()
    assert max(len(line) for line in lines) <= 80, "\n".join(lines)
    assert (WHY in " ".join(" ".join(lines).split())) == (command != "queue")


def test_errors_fit_80_columns(
    server: FakeServer, terminal: Callable[..., Screen], call: Call
) -> None:
    """On a terminal broken between words; elsewhere each is one line, as scripts read it."""
    server.on("GET", "/jobs", problem(409, WHY))
    lines = terminal("queue", columns=80, NO_COLOR="1").text.replace("\r", "").splitlines()
    assert max(len(line) for line in lines) <= 80, "\n".join(lines)
    assert " ".join(" ".join(lines).split()) == f"topmast: {WHY}"
    assert call("queue").error == f"topmast: {WHY}"


def test_what_doctor_finds_fits_80_columns(terminal: Callable[..., Screen]) -> None:
    """Details stand in a table, and remedies below it."""
    screen = terminal("doctor", "--store", WHY, "--fleet", "f.yaml", columns=80, NO_COLOR="1")
    lines = screen.text.replace("\r", "").splitlines()
    assert max(len(line) for line in lines) <= 80, "\n".join(lines)
    assert WHY.split()[-1] in " ".join(lines)


def test_a_drain_may_be_told_not_to_wait(server: FakeServer, call: Call) -> None:
    """And says what is still there, and why."""
    stays = {"j1": "it may not be preempted, so it runs to its end"}
    drained = host("h0", "draining", stays=stays, kept_for=("j5",))
    server.on("GET", "/hosts", {"hosts": [drained]})
    server.on("POST", "/hosts/drain", acted("drain", drained))
    called = call("drain", "h0", "--now")
    assert "j1 is still on h0: it may not be preempted, so it runs to its end" in called.out
    assert "GPUs of h0 are kept for j5, which is being moved there" in called.out
    call("drain", "h0")
    first, second = server.asked("POST", "/hosts/drain")
    assert first.document["now"] is True
    assert "now" not in second.document


def test_what_a_drain_would_do_is_shown(server: FakeServer, call: Call) -> None:
    """Where each job would go and at which cost, or why not."""
    why = "no other hosts in region east have room for it now"
    moves = (
        v.MoveView("j1", ("h0",), True, "east-2", ("h5", "h6"), 1234.5, ""),
        v.MoveView("j2", ("h0",), False, None, (), 60.0, why),
    )
    plans = (v.DrainView("h0", "east", "x", moves), v.DrainView("h1", "east", "x", ()))
    server.on("GET", "/hosts", {"hosts": [host("h0"), host("h1")]})
    server.on("POST", "/hosts/drain", acted("drain", host("h0"), dry_run=True, drains=plans))
    found = call("drain", "h0", "h1", "--dry-run")
    assert found.err == "nothing was done\n"
    lines = found.out.splitlines()
    assert lines[1].split() == ["j1", "h0", "east-2:", "h5,h6", "1234", "-"]
    assert lines[2].split("60  ")[1] == why
    assert lines[3] == "nothing runs on h1"
    document = call("drain", "h0", "--dry-run", "--json").document
    assert document["drains"][0]["moves"][0]["to_hosts"] == ["h5", "h6"]
    assert all(order.document["dry_run"] for order in server.asked("POST", "/hosts/drain"))


@pytest.mark.parametrize(("verb", "becomes"), [("close", "closed"), ("open", "open")])
def test_a_dry_run_says_what_a_cluster_would_be(
    verb: str, becomes: str, server: FakeServer, call: Call
) -> None:
    """And that nothing was done."""
    server.on("GET", "/clusters", {"clusters": CLUSTERS})
    acted = ClusterActed(verb, True, CLUSTERS[0], "done", ("j1", "j2"))
    server.on("POST", f"/clusters/{verb}", {"clusters": [acted]})
    name = CLUSTERS[0].name
    found = call("clusters", verb, name, "--dry-run")
    said = f"{name}: it would be {becomes}; 2 jobs there would go on"
    assert (found.out.splitlines()[-1], found.err) == (said, "nothing was done\n")


@pytest.mark.parametrize("verb", ["close", "open"])
def test_clusters_are_closed_and_opened(verb: str, server: FakeServer, call: Call) -> None:
    """With the reason, which is shown."""
    why = "ann closed the cluster: new switches"
    closed = msgspec.structs.replace(CLUSTERS[0], state="closed", closed=why)
    server.on("GET", "/clusters", {"clusters": CLUSTERS})
    acted = ClusterActed(verb, False, closed, "done", ("j1",))
    server.on("POST", f"/clusters/{verb}", {"clusters": [acted]})
    called = call("clusters", verb, "east-1", "--reason", "new switches")
    assert f"east-1 is closed: {why}" in called.out
    assert "east-1: 1 job there goes on" in called.out
    (order,) = server.asked("POST", f"/clusters/{verb}")
    assert order.document["clusters"] == ["east-1"]
    assert (order.document["reason"], order.document["dry_run"]) == ("new switches", False)
    assert "no cluster 'east-9'" in call("clusters", verb, "east-9").error
    later = msgspec.structs.replace(closed, until_s=1e9)
    acted = ClusterActed(verb, False, later, "done", ())
    server.on("POST", f"/clusters/{verb}", {"clusters": [acted]})
    server.on("GET", "/clusters", {"clusters": [later]})
    called = call("clusters", verb, "east-1")
    assert f"east-1 is closed: {why}, until {moment(1e9)}" in called.out
    assert "there go" not in called.out
    assert f"until {moment(1e9)}" in call("clusters").out


RESERVATION = ReservationView(
    "w1", "planned", 1e9, 2e9, ("h0", "h1"), "", "", ("vision",), "ann", "disks", 16.0, ("j1",)
)


def test_hosts_are_reserved(server: FakeServer, call: Call) -> None:
    """Until a time or for so long; the jobs that may still be there are named."""
    server.on("POST", "/reservations", RESERVATION)
    server.on("POST", "/reservations/w1/end", replace(RESERVATION, state="begun"))
    server.on("GET", "/reservations", {"reservations": [RESERVATION]})
    reserve = ("reserve", "add")
    called = call(*reserve, "h0", "h1", "--from", "2h", "--for", "4h", "--tenant", "vision")
    assert "1 job may still run there when it begins: j1" in called.out
    (order,) = server.asked("POST", "/reservations")
    assert order.document["until_s"] - order.document["from_s"] == 4 * 3600.0
    assert (order.document["hosts"], order.document["tenants"]) == (["h0", "h1"], ["vision"])
    assert call(*reserve, "h0", "--for", "4h").code == 0
    order = server.asked("POST", "/reservations")[-1]
    assert order.document["until_s"] - time.time() == pytest.approx(4 * 3600.0, abs=60)
    for wrong, told in (
        (("--for", "4h"), "name hosts, or give one of"),
        (("h0", "--cluster", "c", "--for", "4h"), "HOST,--cluster each say which hosts: give only"),
        (("h0",), "say when it ends: with --until, or"),
        (("h0", "--for", "4h", "--until", "9h"), "--until and --for both say when it ends: give"),
    ):
        called = call(*reserve, *wrong)
        assert (called.code, told in called.error) == (2, True), called.error
    assert call("reserve", "end", "w1", "--dry-run").out.splitlines()[1].startswith("w1")
    ended = call("reserve", "end", "w1").out
    assert ended == "reservation w1 has ended: h0,h1 is free for all jobs again\n"
    server.on("POST", "/reservations/w1/end", RESERVATION)
    ended = call("reserve", "end", "w1").out
    assert " ".join(ended.split()) == (
        "reservation w1 has ended: it had not begun, and h0,h1 stays free for all jobs"
    )
    server.on("POST", "/reservations", replace(RESERVATION, name=""))
    dry = call(*reserve, "h0", "--for", "4h", "--dry-run").out.splitlines()
    assert "this would be reserved for vision by ann: disks" in dry
    lines = call("reserve").out.splitlines()
    assert lines[1].split()[0] == "w1"
    assert lines[2] == "w1 is reserved for vision by ann: disks"
    assert call("reserve", "--json").document["reservations"][0]["reason"] == "disks"


@pytest.mark.parametrize("command", ["reserve", "tenants"])
def test_tables_fit_80_columns(
    command: str, server: FakeServer, terminal: Callable[..., Any]
) -> None:
    """Of what fleets have: names of some letters, times, amounts of thousands."""
    long = msgspec.structs.replace(
        RESERVATION, cluster="eu-west-h100-1", state="planned", gpus=12000.0, jobs=("j1",) * 250
    )
    row = v.TenantView("recommender", "H100", 12000, 12000, 1200, 1200, 12000, 1, "product", 0.25)
    server.on("GET", "/reservations", {"reservations": [long]})
    server.on("GET", "/tenants", {"tenants": [row]})
    text = terminal(command, columns=80, NO_COLOR="1").text
    assert all(len(line) <= 80 for line in text.splitlines()), text
    whole = ("eu-west-h100-1", "2001-09-09") if command == "reserve" else ("recommender", "product")
    assert all(word in text for word in whole), text


def test_a_quota_is_given_for_a_while(server: FakeServer, call: Call) -> None:
    """Before and after are shown; without an end it is an error."""
    found = QuotaActed("vision", True, {"H100": 2}, {"H100": 64, "A100": 8}, 1e9, 2e9, "", 3, 1)
    server.on("POST", "/tenants/vision/quota", found)
    server.on("POST", "/tenants/vision/quota/end", found)
    quota = ("tenants", "quota", "vision")
    called = call(*quota, "--gpus", "H100=64", "--gpus", "A100=8", "--until", "3d", "--dry-run")
    lines = called.out.splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["H100", "2", "64"],
        ["A100", "0", "8"],
    ]
    assert lines[-1] == "3 jobs of it waiting, 1 with GPUs"
    (order,) = server.asked("POST", "/tenants/vision/quota")
    assert (order.document["quota"], order.document["dry_run"]) == ({"H100": 64, "A100": 8}, True)
    assert call(*quota, "--end").code == 0
    assert called.err == "nothing was done\n"
    too_many = "the quotas add up to 64 H100, and there are 48"
    server.on("POST", "/tenants/vision/quota", msgspec.structs.replace(found, warnings=(too_many,)))
    called = call(*quota, "--gpus", "H100=64", "--for", "3d")
    assert (called.code, called.err) == (0, f"warning: {too_many}\n")
    order = server.asked("POST", "/tenants/vision/quota")[-1]
    assert order.document["until_s"] - time.time() == pytest.approx(3 * 86400.0, abs=60)
    for wrong in (
        ("--gpus", "H100=64", "--for", "3d", "--until", "4d"), ("--end", "--for", "3d"),
        (), ("--gpus", "H100=64"), ("--until", "3d"), ("--gpus", "H100=x", "--until", "3d"),
        ("--end", "--gpus", "H100=64", "--until", "3d"),
    ):  # fmt: skip
        assert call(*quota, *wrong).code == 2


def test_a_quota_for_a_while_says_which_it_replaces(server: FakeServer, call: Call) -> None:
    """Of whom, until when and why; also in a dry run, and where it ends before its time."""
    old = TimedQuota("ads", {"H100": 24}, 1e9, 2e9, "sa:ops", "a deadline")
    what = "the quota for a while that there was: 24 H100 for tenant ads for a while, by sa:ops: a"
    new = QuotaActed("ads", True, {"H100": 24}, {"H100": 24}, 1e9, 1.5e9, "", 0, 0, old)
    command = ("tenants", "quota", "ads")
    for until_s, dry_run, want in (
        (1.5e9, True, "it would replace"), (1.5e9, False, "it replaces"),
        (None, True, "it would end"), (None, False, "it ends"),
    ):  # fmt: skip
        found = msgspec.structs.replace(new, until_s=until_s, dry_run=dry_run)
        server.on("POST", "/tenants/ads/quota", found)
        server.on("POST", "/tenants/ads/quota/end", found)
        how = ("--end",) if until_s is None else ("--gpus", "H100=24", "--for", "90s")
        (line,) = [li for li in call(*command, *how).out.splitlines() if li.startswith("it ")]
        assert line.startswith(f"{want} {what}")
        assert "to 2033-05-18" in line


def test_budgets_are_listed(server: FakeServer, call: Call) -> None:
    """What is used, of how much, and what happens then."""
    one = BudgetView("vision", "2030-01", "hold", 50.04, 7.0, 50.0, 9.0, 100.0)
    server.on("GET", "/budgets", {"budgets": [one]})
    line = call("tenants", "budgets").out.splitlines()[1]
    assert line.split() == ["vision", "2030-01", "50", "100", "7.00", "-", "50%", "hold"]
    assert call("tenants", "budgets", "--json").document["budgets"][0]["until_s"] == 9.0


def test_a_busy_host_is_summed_up(server: FakeServer, call: Call) -> None:
    """Hundreds of small jobs do not fill the screen."""
    jobs = tuple(f"j{number}" for number in range(300))
    server.on("GET", "/hosts", {"hosts": [host("h0", jobs=jobs)]})
    assert "j5 and 294 more" in call("hosts").out


def test_lists_break_at_commas_on_a_narrow_terminal(
    server: FakeServer, terminal: Callable[..., Any]
) -> None:
    """Not in the middle of an id."""
    jobs = tuple(f"j{number}" for number in range(10_001, 10_009))
    server.on("GET", "/hosts", {"hosts": [host("h0", jobs=jobs)]})
    words = re.split(r"[\s,]+", terminal("hosts", columns=80, NO_COLOR="1").text)
    assert [word for word in words if word.startswith("j")] == list(jobs)


# ---------------------------------------------------------------------------------------- datasets


def test_a_dataset_is_added(server: FakeServer, call: Call, tmp_path: Path) -> None:
    """From a folder, whose full path the server is told."""
    server.on("POST", "/datasets", Answer(DATASETS[0], 201))
    called = call(
        "datasets", "add", "imagenet", "--region", "east", "--source", tmp_path,
        "--allowed", "east", "--allowed", "west", "--min-replicas", "2", "--json",
    )  # fmt: skip
    assert called.document["name"] == "imagenet"
    assert server.requests[0].document == {
        "name": "imagenet", "region": "east", "min_replicas": 2, "source": str(tmp_path),
        "allowed": ["east", "west"],
    }  # fmt: skip


def test_a_dataset_is_copied_and_dropped(server: FakeServer, call: Call) -> None:
    """A copy takes its time, which is said."""
    server.on("POST", "/datasets/imagenet/replicas", Answer(DATASETS[0], 202))
    called = call("datasets", "replicate", "imagenet", "west")
    assert (called.code, called.error) == (0, "imagenet is being copied to west")
    assert "east->west 25%" in called.out
    server.on("DELETE", "/datasets/imagenet/replicas/west", DATASETS[0])
    assert call("datasets", "drop", "imagenet", "west", "--json").document["name"] == "imagenet"
    server.on("DELETE", "/datasets/imagenet/replicas/west", problem(409, "a job reads it"))
    assert call("datasets", "drop", "imagenet", "west").error == "topmast: a job reads it"


def test_quotas_beyond_the_fleet_are_told(server: FakeServer, call: Call) -> None:
    """Those at the top of each tree, where there are fewer GPUs; a server that does not say how many tells nothing."""

    def row(name: str, nominal: float | None, parent: str | None = None) -> v.TenantView:
        return v.TenantView(name, "H100", nominal, 0, 0, 0, 0, 1.0, parent, present=48.0)

    rows = [row("a", 40.0), row("a-one", 40.0, "a"), row("group", None), row("b", 16.0, "group")]
    server.on("GET", "/tenants", {"tenants": rows})
    called = call("tenants")
    assert called.error == (
        "warning: the quotas add up to 56 H100, and there are 48: not all tenants can have theirs at once"
    )
    server.on("GET", "/tenants", {"tenants": [row("a", 40.0), row("b", 8.0)]})
    assert call("tenants").err == ""
    server.on("GET", "/tenants", {"tenants": TENANTS})
    assert call("tenants").err == ""


# ------------------------------------------------------------------------------------------- usage


def test_usage(server: FakeServer, call: Call) -> None:
    """GPU-hours by whatever is asked for, with the share that was lost."""
    rows = [
        v.UsageRow("ada", 3, 10.0, 7.5, 2.5, idle_gpu_h=1.25),
        v.UsageRow("bob", 0, 0.0, 0.0, 0.0),
    ]
    report = {"usage": msgspec.to_builtins(rows), "since_s": 1e9, "until_s": 1e9 + 60, "by": "user"}
    server.on("GET", "/usage", report)
    called = call("usage", "--by", "user", "--since", "1000000000")
    assert called.out.splitlines()[0].startswith("From 2001-09-0")
    assert called.out.splitlines()[2].split() == ["ada", "3", "10", "7.5", "2.5", "25.0", "1.25"]
    assert called.out.splitlines()[3].split() == ["bob", "0", "0", "0", "0", "-", "0"]
    assert call("usage", "--json").document == report
    asked = server.requests
    assert asked[0].query == {"by": "user", "since": "1000000000.0"}
    rows = [
        v.UsageRow("=cmd", 3, 10.0, 7.5, 2.5, 25.0, 0.0),
        v.UsageRow("-", 1, 1.0, 1.0, 0.0, 0.0, 1.0),
    ]
    server.on("GET", "/usage", {**report, "usage": msgspec.to_builtins(rows)})
    priced = call("usage", "--by", "user")
    assert [line.split()[-1] for line in priced.out.splitlines()[1:]] == ["USD", "25.00", "0.00"]
    assert priced.error == "1 GPU-hours have no price in the fleet file"
    written = call("usage", "--by", "user", "--csv").out.splitlines()
    assert written[0] == (
        "user,attempts,held_gpu_h,kept_gpu_h,lost_gpu_h,cost_usd,unpriced_gpu_h,idle_gpu_h,"
        "since_s,until_s"
    )
    assert written[1] == "'=cmd,3,10.0,7.5,2.5,25.0,0.0,0.0,1000000000.0,1000000060.0"
    assert written[2].startswith("-,1,"), "what has no name is no formula"
    assert call("usage", "--csv", "--json").code == 2
    assert asked[1].query == {"by": "tenant"}


PLAN = DataPlanView(
    86_400.0, 2e9, False, 3, 1e9,
    {"gap": 0.0231, "max_demand_supply": 1.004, "replication_overhead": 0.42},
    {}, 4, 2, 1, 17, ("copy of a in west: the store of region 'west' has no room for 'a'",),
    "the planner's process died (signal 9)", 1e9,
)  # fmt: skip
NO_PLAN = DataPlanView(None, None, False, None, None, {}, {}, 0, 0, 0, 0, (), None, None)


def test_the_data_plan(server: FakeServer, call: Call) -> None:
    """How good it is, how far it is, what was given up, what went wrong."""
    server.on("GET", "/plans/data", PLAN)
    out = call("datasets", "plan").out
    assert "Plan 3: gap 2.31%, worst demand/supply 1.00, 42% bytes beyond" in out
    assert "17 done, 2 copies under way, 4 to come, 1 drops to come" in out
    assert "Given up: copy of a in west" in out
    assert "The last plan failed: the planner's process died (signal 9)" in out


def test_no_data_plan(server: FakeServer, call: Call) -> None:
    """Nothing is planned: the option that would is named."""
    server.on("GET", "/plans/data", NO_PLAN)
    assert "--plan-data-every" in call("datasets", "plan").out


def test_why_a_dataset_is_where_it_is(server: FakeServer, call: Call) -> None:
    """The plan's word, else the cause of the copy, region by region."""
    planned = v.ReplicaView("east", "complete", "planned: serves demand of 3 GPUs")
    coming = v.ReplicaView("west", "copying")
    row = v.DatasetView("d", 1, "d", None, 1, (planned, coming), DATASETS[0].copies)
    server.on("GET", "/datasets", {"datasets": [row]})
    server.on("GET", "/plans/data", PLAN)
    out = call("datasets", "why", "d").out
    assert "east    complete  planned: serves demand of 3 GPUs" in out
    assert "west    copying   copied for j1" in out
    assert call("datasets", "why", "nothing").code == 1


def test_why_a_dataset_is_where_it_is_without_a_plan(server: FakeServer, call: Call) -> None:
    """A plan that there is not is not said to leave the dataset out; a slip in the name is answered."""
    row = v.DatasetView("images", 1, "d", None, 1, (v.ReplicaView("east", "complete"),), ())
    server.on("GET", "/datasets", {"datasets": [row]})
    server.on("GET", "/plans/data", NO_PLAN)
    out = call("datasets", "why", "images").out
    assert "east    complete  there is no plan: `topmast datasets plan`" in out
    server.on("GET", "/datasets", {"datasets": [msgspec.structs.replace(row, replicas=())]})
    assert call("datasets", "why", "images").out == (
        "No region has its files: `topmast datasets add images --region REGION --source FOLDER` "
        "brings them into one.\n"
    )
    assert call("datasets", "why", "imges").error == (
        "topmast: no dataset 'imges' (did you mean 'images'?)"
    )


CAPACITY = CapacityPlanView(
    1_800.0, 2e9, False, 4, 1e9, {"east": {"gap": 0.0}},
    (CapacityRow("east", "east-1", "H100", 32, 12.34, 0, 48, 8, 40),
     CapacityRow("west", "west-1", "H100", 32, 0, 30, 16, 0, 24, 8)),
    (HostMoveView("h7", "west-1", "east-1"),), "the planner's process died (signal 9)", 1e9,
    ("h3",), ("north",),
)  # fmt: skip


def test_the_capacity_plan(server: FakeServer, call: Call) -> None:
    """What each cluster has, lacks and asks for, who is about to leave, who is out of reach, what went wrong."""
    server.on("GET", "/plans/capacity", CAPACITY).on("GET", "/regions", {"regions": REGIONS})
    out = call("clusters", "--plan").out
    assert "east-1 east H100 32 12.3 0 48 8 40 0" in " ".join(out.split())
    assert "west-1 west H100 32 0 30 16 0 24 8" in " ".join(out.split())
    assert "Region north is out of reach: it is not planned for now" in out
    assert "h7 leaves west-1 for east-1 when it is empty" in out
    assert "The last plan failed: the planner's process died (signal 9)" in out
    assert "west-1 west" not in " ".join(call("clusters", "--plan", "--region", "east").out.split())
    assert json.loads(call("clusters", "--plan", "--json").out)["number"] == 4


def test_no_capacity_plan(server: FakeServer, call: Call) -> None:
    """Nothing is planned: the option that would is named."""
    nothing = CapacityPlanView(None, None, False, None, None, {}, (), (), None, None)
    server.on("GET", "/plans/capacity", nothing)
    assert "--plan-capacity-every" in call("clusters", "--plan").out


def test_copies_on_demand_are_counted(server: FakeServer, call: Call) -> None:
    """With their limit, also where nothing is planned."""
    server.on("GET", "/plans/data", msgspec.structs.replace(NO_PLAN, fetched=1, fetched_most=4))
    assert "data was copied for 1 job of late, 4 at most" in call("datasets", "plan").out
