"""Kill the server with SIGKILL at random moments, again and again, and check what it promised.

    python -m tests.crash.run --kills 300 --seed 7

The server is the real one, on a small fleet of host processes; clients submit all the while. Only
the server is killed. Progress goes to stderr; the last line on stdout is the result, as JSON.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.crash.verdict import ENDS, Evidence, Proof, ProofFile, Verdict, judge
from tests.crash.workload import FLEET, SETTINGS, Load, Submitter, Watcher
from tests.support import live
from topmast import Client

CLIENTS = 4
LONGEST_WAIT_S = 1.5
DURING_START = 0.25
"""The share of kills that come while the server starts and recovers."""
AFTER_ACK = 0.25
"""The share of kills that come in the moment after an acknowledgement."""
AFTER_SIGTERM = 0.15
"""The share of kills that hit a server already told to stop, maybe saving its last snapshot."""
SHUTDOWN_S = 0.3
SNAPSHOT_RECORDS = 400
"""A snapshot every few seconds, so that recovery from one is tested too."""
END_PATIENCE_S = 120.0


@dataclass
class Result:
    """How a crash test went."""

    kills: int
    acknowledged: int
    verdict: Verdict
    survived: int
    """How often a running task was there before a kill and after it, summed over the kills."""

    @property
    def line(self) -> str:
        """The result as JSON."""
        return json.dumps(
            {
                "kills": self.kills,
                "acknowledged": self.acknowledged,
                "lost": len(self.verdict.lost),
                "double_runs": len(self.verdict.double_runs),
            }
        )


class CrashTest:
    """One run in one folder."""

    def __init__(self, folder: Path, kills: int, seed: int) -> None:
        self.folder = folder
        self.kills = kills
        self.rng = random.Random(seed)
        for name in ("locks", "gangs"):
            (folder / name).mkdir()
        fleet = folder / "fleet.yaml"
        fleet.write_text(FLEET, encoding="utf-8")
        self.server = live.Server(folder / "state", fleet, SETTINGS, SNAPSHOT_RECORDS)
        self.load = Load(self.server.state, folder, seed)
        self.watcher = Watcher(self.load)
        self.proof = ProofFile(folder / "proof")
        self.survived = 0
        self.told_to_end = False
        self.start_s = 1.0
        """How long the server took to start when it was let."""

    def run(self) -> Result:
        """Kill and restart, then let everything end, and judge."""
        threads = [self.watcher, *(Submitter(self.load, n) for n in range(CLIENTS))]
        try:
            self.start()
            for thread in threads:
                thread.start()
            for number in range(1, self.kills + 1):
                self.kill_once(number)
            self.load.over.set()
            for thread in threads:
                thread.join(END_PATIENCE_S)
                if thread.is_alive():
                    self.load.incidents.append(f"{thread.name} waits for an answer for ever")
            evidence = self.settle()
        finally:
            self.load.over.set()
            self.server.end()
        return Result(self.kills, self.load.acknowledged, judge(evidence), self.survived)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        begun_s = time.monotonic()
        self.server.start()
        self.server.wait_ready()
        self.start_s = time.monotonic() - begun_s

    def kill_once(self, number: int) -> None:
        """Kill the running server at a random moment, restart it, and look who survived."""
        self.told_to_end = False
        when = self.wait_for_the_moment()
        if not self.server.running and not self.told_to_end:
            tail = self.server.log_tail()
            self.load.incidents.append(f"the server ended by itself before kill {number}:\n{tail}")
        self.server.kill()
        before = self.running()
        if self.rng.random() < DURING_START:
            self.server.start()
            time.sleep(self.rng.uniform(0.0, self.start_s))
            self.look_for(before)
        else:
            self.start()
            self.look_for(before)
        say(f"kill {number}/{self.kills} {when}: {self.load.acknowledged} acknowledged, "
            f"{self.load.active} active, {len(before)} tasks ran")  # fmt: skip

    def wait_for_the_moment(self) -> str:
        """Let some time go by; tells which time."""
        if not self.server.url:
            return "during the start"
        if self.rng.random() < AFTER_ACK:
            time.sleep(self.rng.uniform(0.0, LONGEST_WAIT_S))
            self.kill_at_next_ack()
            return "after an acknowledgement"
        wait_s = self.rng.uniform(0.0, LONGEST_WAIT_S)
        time.sleep(wait_s)
        if self.rng.random() < AFTER_SIGTERM and self.server.running:
            self.told_to_end = True
            self.server.terminate()
            time.sleep(self.rng.uniform(0.0, SHUTDOWN_S))
            return "while it shut down"
        return f"{wait_s:.2f} s after it was up"

    def kill_at_next_ack(self) -> None:
        """Have the client itself kill the server that has just answered: nothing is sooner."""
        killer, killed = self.server.killer(), threading.Event()

        def kill() -> None:
            killer()
            killed.set()

        self.told_to_end = True
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
        """Every task that ran before the kill runs on as the same process, or ended by itself."""
        gone = [proof for proof in before if not live.is_alive(proof.pid)]
        self.survived += len(before) - len(gone)
        silent = {proof.run for proof in self.running()}
        for proof in gone:
            if proof.run in silent:
                self.load.incidents.append(
                    f"{proof.job} ({proof.name}), process {proof.pid}, died with the server"
                )

    def settle(self) -> Evidence:
        """Wait until every job has ended, then collect all there is to know."""
        if not self.server.url:
            self.server.wait_ready()
        with Client(self.server.url, timeout_s=60.0) as client:
            deadline_s = time.monotonic() + END_PATIENCE_S
            while active := client.job_page(states="active", limit=1000).jobs:
                if time.monotonic() > deadline_s:
                    break
                say(f"{len(active)} jobs have not ended yet")
                time.sleep(1.0)
            return self.collect(client)

    def collect(self, client: Client) -> Evidence:
        """What the server and the tasks say, when all is over."""
        jobs = list(client.jobs())
        for view in jobs:
            self.watcher.compare(view)
        again = [view.id for view in jobs if view.attempts > 1 or view.state != "SUCCEEDED"]
        return Evidence(
            submissions=self.load.sent,
            proof=self.proof.read(),
            jobs=jobs,
            outcomes={job: [a.outcome for a in client.story(job).attempts] for job in again},
            gpus=client.gpus(),
            tenants=client.tenants(),
            hosts=client.hosts(),
            left_running=live.tasks(self.server.state),
            incidents=self.load.incidents,
        )


def crash_test(folder: Path, kills: int, seed: int) -> Result:
    """Run a crash test in an empty folder, tell the story on stderr, and return how it went."""
    say(f"seed {seed}, {kills} kills, in {folder}")
    begun_s = time.monotonic()
    test = CrashTest(folder, kills, seed)
    result = test.run()
    verdict = result.verdict
    for title, found in (
        ("lost", verdict.lost), ("double run", verdict.double_runs), ("broken", verdict.others),
    ):  # fmt: skip
        for problem in found:
            say(f"{title}: {problem}")
    kinds = Counter(proof.kind for proof in test.proof.lines)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    say(f"{time.monotonic() - begun_s:.0f} s; tasks said: {counts}; "
        f"running tasks met again after a kill: {result.survived}")  # fmt: skip
    return result


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
