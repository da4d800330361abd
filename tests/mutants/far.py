"""Steps of the protocol of far engines, each left out once, with the test that must notice."""

from tests.mutants.mutant import Mutant

PROTOCOL = "adapters/engines/far/protocol.py"
STEPS = "tests/unit/adapters/engines/far/test_protocol.py"
DRIVER = "tests/unit/adapters/engines/far/test_engine.py"
MACHINE = "adapters/engines/far/ssh/machine.py"
REMOTE = "tests/unit/adapters/engines/ssh/test_remote.py"
STORIES = "tests/properties/test_far_protocol.py"


def step(promise: str, old: str, new: str, test: str = STORIES) -> Mutant:
    """A step of the protocol that is left out."""
    return Mutant(promise, PROTOCOL, old, new, test)


def driver(promise: str, old: str, new: str, test: str) -> Mutant:
    """A step of what drives the protocol that is left out."""
    return Mutant(promise, "adapters/engines/far/engine.py", old, new, f"{DRIVER}::{test}")


FAR = (
    driver(
        "a replaced leader grants no claim",
        "        with self._leaders.held() as leads:\n            if leads:",
        "        with self._leaders.held():\n            if True:",
        "test_a_runner_is_granted_nothing_by_a_replaced_leader",
    ),
    driver(
        "an order that waits is not carried out after another leader",
        "        with self._leaders.held() as leads:\n            if leads:",
        "        with self._leaders.held():\n            if True:",
        "test_an_order_that_waits_is_not_carried_out_after_another_leader",
    ),
    driver(
        "a replaced leader asks nothing of the scheduler",
        "                if self._leaders.leads():",
        "                if True:",
        "test_a_replaced_leader_asks_nothing_of_the_scheduler",
    ),
    step(
        "an eviction is told as one, though a stop was ordered",
        "                    event.evicted and not self.attempts.was_cancelled(event.part),",
        "                    event.evicted and attempt.stop is None,",
    ),
    step(
        "what we have the scheduler end is not evicted",
        "                part.cancelled = part.cancelled or not part.shown.evicted",
        "                pass",
        STEPS,
    ),
    step(
        "only a look that began after an intent counts",
        "            if event.began_s >= part.since_s and not part.submitting:",
        "            if not part.submitting:",
        STEPS,
    ),
    step(
        "what the last look showed is not submitted at once",
        "        return part.name not in self._shown",
        "        return True",
        STEPS,
    ),
    step(
        "nothing is submitted at once without a look before it",
        "        if self._shown is None or not",
        "        if not",
        STEPS,
    ),
    step(
        "what may be there a second time is held",
        "            self._submit(attempt, part, hold=True)",
        "            self._submit(attempt, part, hold=False)",
        STEPS,
    ),
    step(
        "what does not start with the others is told",
        "            for place in part.stranded(self._now.s, attempt.lease_s):",
        "            for place in ():",
        STEPS,
    ),
    step(
        "what lost a host before it started is told",
        "        if 0 < chosen.hosts < len(part.places):",
        "        if False:",
        STEPS,
    ),
    step(
        "a part is recorded before it is released",
        "            self._note(e.Recorded(part.name, live[0].id, live[0].submitted_s))",
        "            self.attempts.apply(e.Recorded(part.name, live[0].id, live[0].submitted_s))",
        STEPS,
    ),
    step(
        "of two submissions the other is cancelled",
        "            if other is not chosen and other.state in (State.HELD, State.WAITING):",
        "            if False:",
        STEPS,
    ),
    step(
        "a second runner is refused",
        "        if place.nonce and place.nonce != event.nonce:",
        "        if False:",
    ),
    step(
        "a claim is recorded",
        "            self._note(e.Claimed(event.part, event.host, event.nonce, *at))",
        "            self.attempts.apply(e.Claimed(event.part, event.host, event.nonce, *at))",
    ),
    step(
        "nothing is claimed after its end",
        "return found[0], place, e.GRANTED if place.left else e.OVER",
        "return found[0], place, e.GRANTED",
    ),
    step(
        "a stop fences what is unclaimed",
        "                self._lose(attempt, place, STOPPED_EARLY, blameless=True)",
        "                pass",
        STEPS,
    ),
    step(
        "a stop is recorded",
        "            self._note(e.Stopped(*key, grace_s))",
        "            self.attempts.apply(e.Stopped(*key, grace_s))",
        STEPS,
    ),
    step(
        "leases count anew after a restart",
        "                        place.heard_s = place.claimed_s = now.s",
        "                        place.claimed_s = now.s",
    ),
    step(
        "ends are told again after a restart",
        "            self._tell(attempt)\n        return self._end()",
        "        return self._end()",
        STEPS,
    ),
    step(
        "nothing is told dead before its lease is over",
        "if not lives and attempt.is_silent(place, self._now.s, self.terms.margin_s):",
        "if not lives and self._now.s > place.heard_s + attempt.lease_s / 2:",
    ),
    step(
        "what its host says runs is not told dead",
        "if not lives and attempt.is_silent(place, self._now.s, self.terms.margin_s):",
        "if attempt.is_silent(place, self._now.s, self.terms.margin_s):",
        STEPS,
    ),
    step(
        "what outlives its runner is ended by its host",
        "            late = place in dead or attempt.is_late(",
        "            late = attempt.is_late(",
        STEPS,
    ),
    step(
        "what is silent for a lease is told dead",
        "            e.Tick: lambda event: self._tick(),",
        "            e.Tick: lambda event: None,",
    ),
    step(
        "a scheduler that is silent gets no work in time",
        "        self._say(*self.hosts.trust(self._now.s, self.terms.distrust_s))\n        for",
        "        for",
        STEPS,
    ),
    step(
        "a submission without an answer is a sign of silence",
        "            self.hosts.unsure(event.unsure)\n",
        "",
        STEPS,
    ),
    step(
        "what every job waits for in vain closes the cluster",
        "            self._say(*self.hosts.refuse(lost, self._now.s))\n",
        "            pass\n",
        STEPS,
    ),
    step(
        "an end by the scheduler needs the host's daemon",
        " and self.hosts.answered_since(place.host, patience_s)",
        "",
    ),
    step(
        "without a lease the scheduler is believed",
        "            if attempt.lease_s is None or truth:",
        "            if truth:",
        STEPS,
    ),
    step(
        "without a lease silence is no end",
        "            if attempt.lease_s is None:\n                continue\n",
        "            attempt.lease_s = attempt.lease_s or 600.0\n",
        STEPS,
    ),
    step(
        "a daemon that comes back needs a while to end what is over",
        "place.host, patience_s)",
        "place.host, self._now.s)",
        STEPS,
    ),
    step(
        "an end by the scheduler may be that of another run",
        "chosen.run == place.run and not place.doubled",
        "not place.doubled",
        STEPS,
    ),
    step(
        "after a second claim the scheduler is not believed",
        "chosen.run == place.run and not place.doubled",
        "chosen.run == place.run",
        STEPS,
    ),
    step(
        "a second claim is remembered",
        "                self._note(e.Doubled(event.part, event.host))",
        "                self.attempts.apply(e.Doubled(event.part, event.host))",
        STEPS,
    ),
    step(
        "an end by the scheduler needs a silent runner",
        "            if place.heard_s >= patience_s:\n                continue",
        "            if False:\n                continue",
        STEPS,
    ),
    step(
        "what is claimed and not listed may live",
        "            truth = own and alone",
        "            truth = (own or chosen is None) and alone",
    ),
    step(
        "a host is not down while something is claimed there",
        "            if any(place.left and place.nonce for _, place in there):",
        "            if False:",
    ),
    step(
        "nothing starts on a host that is down",
        "            for attempt, place in there:\n                self._lose(attempt, place, self.hosts.DOWN)",
        "            for attempt, place in there:\n                pass",
        STEPS,
    ),
    step(
        "an end is recorded",
        "        self._note(end)\n        self._say(news_of(end))",
        "        self.attempts.apply(end)\n        self._say(news_of(end))",
    ),
    step(
        "a refused start is recorded",
        "            self._note(e.Stopped(*key, 0.0, unfit))\n",
        "",
        STEPS,
    ),
    step(
        "a submission that vanished is repeated",
        "        elif not part.submits or part.absent >= TWO_LOOKS:",
        "        elif not part.submits:",
    ),
    step(
        "what is held is released",
        "                self._do(e.Release(chosen))",
        "                pass",
    ),
    step(
        "a refused submission is told",
        "                self._lose(attempt, place, event.refused, blameless=True)",
        "                pass",
        STEPS,
    ),
    step(
        "an end that a runner tells after a stop says so",
        "event.report, attempt.stop is not None,",
        "event.report,",
        STEPS,
    ),
    step(
        "what is over is cleared from the scheduler",
        "            self._clear(name, listed)",
        "            pass",
    ),
    Mutant(
        "one listing without a part is not its end",
        "adapters/engines/far/attempts.py",
        "TWO_LOOKS = 2",
        "TWO_LOOKS = 1",
        STEPS,
    ),
    step(
        "what is over and gone is forgotten",
        "        self._draft.actions += map(e.Forget, self.attempts.vanished(by_name, event.unlisted))",
        "        pass",
        STEPS,
    ),
    step(
        "the truth waits for a complete look",
        "        asked = [at_s for at_s in self._asked_s if at_s <= began_s]",
        "        asked = list(self._asked_s)",
        STEPS,
    ),
    step(
        "a runner that does not obey is ended by the scheduler",
        "                self._do(e.Cancel(part.shown, grace_s))",
        "                pass",
        STEPS,
    ),
    step(
        "nothing is submitted beside a running one",
        "        if part.claimed:  # something",
        "        if False:  # something",
        STEPS,
    ),
    Mutant(
        "a machine serves as one host of a fleet behind SSH", MACHINE,
        "                if other != owner:", "                if False:",
        f"{REMOTE}::test_a_machine_serves_as_one_host",
    ),
    Mutant(
        "a part starts once though nothing keeps connections apart",
        "adapters/engines/far/ssh/remote.py",
        '            if (part / "released").exists():  # by', "            if False:  # by",
        f"{REMOTE}::test_a_part_starts_once_though_a_job_holds_the_lock_of_all",
    ),
    Mutant(
        "a machine is kept by the runners there when its connection is cut",
        "adapters/engines/far/ssh/remote.py",
        "        for number in held:", "        for number in held[:1]:",
        f"{REMOTE}::test_a_machine_is_kept_by_what_runs_there",
    ),
)  # fmt: skip
