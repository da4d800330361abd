"""Kill the servers with SIGKILL at random moments, again and again, and check what they promised.

    python -m tests.crash.run --kills 300 --seed 7

The servers are the real ones, on a small fleet of host processes: half of the kills hit one that does
everything, the other half a queue and the placers of two regions. Clients submit all the while. Agents,
supervisors, tasks and whole hosts are killed as well, and any of them is frozen for a while. Commits are
slow, so that kills fall before and into them. Progress goes to stderr; the last line on stdout is the
result, as JSON.
"""

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from tests.crash.plan import LONGEST_WAIT_S, SHUTDOWN_S, Nemesis, Phase, Round, make_plan
from tests.crash.plant import APART, ONE, Plant
from tests.crash.verdict import ENDS, Evidence, Excuses, Proof, ProofFile, Verdict, judge
from tests.crash.workload import Load, Submitter, Watcher
from tests.support import live
from topmast import Client
from topmast.adapters.kernels import load_kernels

CLIENTS = 4
END_PATIENCE_S = 120.0
"""How long nothing may end before the end is waited for no longer."""
FOLDERS = ("locks", "gangs", "attempts")


@dataclass
class Result:
    """How a crash test went. ``faults``: how often each was done, beside the kills of servers."""

    kills: int
    acknowledged: int
    verdict: Verdict
    survived: int
    """How often a running task was there before a kill and after it, summed over the kills."""
    faults: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    """What the tasks said, by kind."""

    @property
    def line(self) -> str:
        """The result as JSON."""
        return json.dumps(
            {
                "kills": self.kills,
                "acknowledged": self.acknowledged,
                "lost": len(self.verdict.lost),
                "double_runs": len(self.verdict.double_runs),
                "broken": len(self.verdict.others),
                "tasks": self.kinds["start"],
                "faults": dict(sorted(self.faults.items())),
            }
        )


class CrashTest:
    """One run against one topology in one folder."""

    def __init__(self, folder: Path, topology: Sequence[str], kills: int, seed: int) -> None:
        self.folder = folder
        self.plan = make_plan(topology, kills, seed)
        for name in FOLDERS:
            (folder / name).mkdir(parents=True)
        self.plant = Plant(folder, topology)
        self.load = Load(self.plant.front.state, folder, seed, lambda: self.plant.was_full)
        self.watcher = Watcher(self.load, lambda: self.plant.whole)
        self.proof = ProofFile(folder / "proof")
        self.survived = 0
        self.faults: Counter[str] = Counter()
        self.told_to_end: tuple[str, ...] = ()
        self.start_s = 1.0
        """How long the servers took to start when they were let."""

    def run(self) -> Result:
        """Kill and restart, then let everything end, and judge."""
        if not self.plant.disk.mounted:
            say("a small disk may not be mounted here: it is never filled")
        threads = [self.watcher, *(Submitter(self.load, n) for n in range(CLIENTS))]
        try:
            self.plant.start()
            self.plant.wait_ready()
            for thread in threads:
                thread.start()
            for number, part in enumerate(self.plan, 1):
                following = self.plan[number] if number < len(self.plan) else None
                self.kill_once(number, part, following)
            self.plant.thaw()
            self.plant.wait_ready()
            self.load.over.set()
            for thread in threads:
                thread.join(END_PATIENCE_S)
                if thread.is_alive():
                    self.load.incidents.append(f"{thread.name} waits for an answer for ever")
            evidence = self.settle()
        finally:
            self.load.over.set()
            self.plant.end()
        kinds = Counter(proof.kind for proof in self.proof.lines)
        return Result(
            len(self.plan), self.load.acknowledged, judge(evidence), self.survived,
            self.faults, kinds,
        )  # fmt: skip

    def kill_once(self, number: int, part: Round, following: Round | None) -> None:
        """Kill servers as the plan says, restart them, and look who survived."""
        self.told_to_end = ()
        self.strike(part.before)
        self.wait_for(part)
        for words in self.plant.ended_by_themselves(self.told_to_end):
            self.load.incidents.append(f"before kill {number} {words}")
        self.plant.kill(part.target)
        before = self.running()
        self.strike(part.down)
        self.plant.tuning.commit_s = part.commit_s
        begun_s = time.monotonic()
        self.plant.start()
        if following is None or following.phase is not Phase.START:
            self.plant.wait_ready()
            self.start_s = time.monotonic() - begun_s
        self.look_for(before)
        say(f"kill {number}/{len(self.plan)} of {', '.join(part.target)} {part.phase}: "
            f"{self.load.acknowledged} acknowledged, {self.load.active} active, "
            f"{len(before)} tasks ran{_with(part)}")  # fmt: skip

    def strike(self, nemesis: Nemesis | None) -> None:
        """Do what the plan says to hosts, or to a server that runs."""
        if nemesis is not None and self.plant.strike(nemesis):
            self.faults[nemesis.fault.name.lower()] += 1

    def wait_for(self, part: Round) -> None:
        """Let time go by until the moment for a kill has come."""
        if part.phase is Phase.START:
            time.sleep(part.moment * self.start_s)
            return
        time.sleep(part.wait_s)
        if part.phase is Phase.ANSWERED:
            self.kill_at_next_ack(part.target)
        elif part.phase is Phase.SHUTDOWN:
            self.told_to_end = part.target
            for name in part.target:
                if self.plant.servers[name].running:
                    self.plant.servers[name].terminate()
            time.sleep(part.moment * SHUTDOWN_S)

    def kill_at_next_ack(self, target: tuple[str, ...]) -> None:
        """Have the client itself kill the server that has just answered: nothing is sooner."""
        killer, killed = self.plant.killer(), threading.Event()

        def kill() -> None:
            killer()
            killed.set()

        self.told_to_end = target
        self.load.at_next_ack = kill
        killed.wait(LONGEST_WAIT_S)
        self.load.at_next_ack = None

    def running(self) -> list[Proof]:
        """Tasks that have begun and not said that they end."""
        found: dict[tuple[str, int, int], Proof] = {}
        for proof in self.proof.read():
            if proof.kind == "start":
                found[proof.run] = proof
            elif proof.kind in ENDS:
                found.pop(proof.run, None)
        return list(found.values())

    def look_for(self, before: Sequence[Proof]) -> None:
        """Every task that ran before the kill runs on as the same process, or ended by itself.

        Or something was killed on its host: that the judge finds out.
        """
        gone = [proof for proof in before if not live.is_alive(proof.pid)]
        self.survived += len(before) - len(gone)
        silent = {proof.run for proof in self.running()}
        excuses = Excuses(Evidence([], self.proof.lines, [], hurts=self.plant.hurts))
        for proof in gone:
            if proof.run in silent and proof.run not in excuses.runs:
                self.load.incidents.append(
                    f"{proof.job} ({proof.name}), process {proof.pid}, died with the server"
                )

    def settle(self) -> Evidence:
        """Wait until every job has ended and every host is back, then collect all there is to know."""
        with Client(self.plant.front.url, timeout_s=60.0) as client:
            deadline_s, before = time.monotonic() + END_PATIENCE_S, 0
            while time.monotonic() < deadline_s:
                active = len(client.job_page(states="active", limit=1000).jobs)
                ill = sum(host.state != "healthy" for host in client.hosts())
                if not active and not ill:
                    break
                if active != before:
                    deadline_s, before = time.monotonic() + END_PATIENCE_S, active
                    say(f"{active} jobs have not ended yet")
                time.sleep(0.5)
            return self.collect(client)

    def collect(self, client: Client) -> Evidence:
        """What the server and the tasks say, when all is over."""
        jobs = list(client.jobs())
        for view in jobs:
            self.watcher.compare(view)
        again = [view.id for view in jobs if view.attempts > 1 or view.state != "SUCCEEDED"]
        stories = {job: client.story(job).attempts for job in again}
        return Evidence(
            submissions=self.load.sent,
            proof=self.proof.read(),
            jobs=jobs,
            outcomes={job: [(a.epoch, a.outcome) for a in told] for job, told in stories.items()},
            hurts=self.plant.hurts,
            answers=self.watcher.answers,
            apart=len(self.plant.servers) > 1,
            gpus=client.gpus(),
            tenants=client.tenants(),
            hosts=client.hosts(),
            left_running=self.plant.left_running(),
            incidents=self.load.incidents,
        )


def _with(part: Round) -> str:
    """What came with a kill, in words."""
    faults = [nemesis.fault for nemesis in (part.before, part.down) if nemesis is not None]
    return f"; {', '.join(faults)}" if faults else ""


def crash_test(folder: Path, kills: int, seed: int) -> Result:
    """Run a crash test in an empty folder, tell the story on stderr, and return how it went."""
    say(f"seed {seed}, {kills} kills, in {folder}")
    load_kernels(say)  # a server that compiles them takes longer to start than is waited for
    begun_s = time.monotonic()
    parts = []
    for topology, share in ((ONE, kills - kills // 2), (APART, kills // 2)):
        if share:
            say(f"{share} kills of {', '.join(topology)}")
            parts.append(CrashTest(folder / f"{len(topology)}", topology, share, seed).run())
    result = _together(parts)
    verdict = result.verdict
    for title, found in (
        ("lost", verdict.lost), ("double run", verdict.double_runs), ("broken", verdict.others),
    ):  # fmt: skip
        for problem in found:
            say(f"{title}: {problem}")
    say(f"{time.monotonic() - begun_s:.0f} s; tasks said: {_counts(result.kinds)}; "
        f"faults: {_counts(result.faults)}; "
        f"running tasks met again after a kill: {result.survived}")  # fmt: skip
    return result


def _together(parts: Sequence[Result]) -> Result:
    """The results of all topologies as one."""
    return Result(
        sum(part.kills for part in parts),
        sum(part.acknowledged for part in parts),
        Verdict(
            _all(part.verdict.lost for part in parts),
            _all(part.verdict.double_runs for part in parts),
            _all(part.verdict.others for part in parts),
        ),
        sum(part.survived for part in parts),
        sum((part.faults for part in parts), Counter()),
        sum((part.kinds for part in parts), Counter()),
    )


def _all(found: Iterable[list[str]]) -> list[str]:
    return list(chain.from_iterable(found))


def _counts(of: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(of.items()))


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.run", description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="how often (default: 30)")
    parser.add_argument("--seed", type=int, help="of every choice (default: from the clock)")
    options = parser.parse_args(arguments)
    seed = int(time.time()) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="topmast-crash-"))
    result = crash_test(folder, options.kills, seed)
    if result.verdict.clean:
        shutil.rmtree(folder)
    else:
        say(f"what there is to see is in {folder}; to do the same again: --seed {seed}")
    print(result.line, flush=True)
    return 0 if result.verdict.clean else 1


if __name__ == "__main__":
    sys.exit(main())
