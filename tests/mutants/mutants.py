"""Ways to break what Topmast promises, each with the test that must notice.

A mutant replaces one piece of the source. A row whose piece is not found any more is an error: the source
was changed, and somebody has to see to it that the promise is still tested.
"""

from tests.mutants.far import FAR
from tests.mutants.mutant import Mutant

LOOP = "runtime/loop.py"
LOCAL = "adapters/engines/local"
TEST_LOOP = "tests/unit/runtime/test_loop.py"
TEST_ACCESS = "tests/integration/test_access.py"
TEST_DURABLE = "tests/contract/test_engine_durable.py"

MUTANTS = (
    Mutant(
        "orders leave after their commit",
        LOOP,
        "        if commit.records or commit.audit.acts:\n",
        "        for send in commit.outbox:\n            self._release(send)\n"
        "        commit.outbox.clear()\n        if commit.records or commit.audit.acts:\n",
        f"{TEST_LOOP}::test_every_order_leaves_when_its_own_cause_is_on_the_disk",
    ),
    Mutant(
        "nothing leaves when a commit fails",
        LOOP,
        "        if commit.records or commit.audit.acts:\n",
        "        for send in commit.outbox:\n            self._release(send)\n"
        "        commit.outbox.clear()\n        if commit.records or commit.audit.acts:\n",
        f"{TEST_LOOP}::test_of_a_commit_that_fails_nothing_gets_out",
    ),
    Mutant(
        "answers are given after their commit",
        LOOP,
        "        self._commit()\n        for answer, reply in replies:\n"
        "            _resolve(answer, reply)\n",
        "        for answer, reply in replies:\n            _resolve(answer, reply)\n"
        "        self._commit()\n",
        f"{TEST_LOOP}::test_every_answer_follows_its_own_commit",
    ),
    Mutant(
        "a journal that fails ends the process",
        LOOP,
        "        self.journal.append(commit.records, commit.audit)\n",
        "        try:\n"
        "            self.journal.append(commit.records, commit.audit)\n"
        "        except OSError:\n"
        "            pass\n",
        f"{TEST_LOOP}::test_a_disk_that_fails_ends_the_process",
    ),
    Mutant(
        "a commit is on the disk when it returns",
        "adapters/store/sqlite.py",
        '"synchronous=FULL"',
        '"synchronous=OFF"',
        "tests/unit/adapters/store/test_sqlite.py"
        "::test_a_commit_is_synced_before_append_returns_and_so_are_the_names",
    ),
    Mutant(
        "a damaged record is refused",
        "adapters/store/checksum.py",
        "    return record if row.crc == wanted else None\n",
        "    return record\n",
        "tests/contract/test_journal.py::test_a_damaged_record_is_not_replayed",
    ),
    Mutant(
        "one process owns a journal",
        "adapters/store/owner.py",
        "            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            pass\n",
        "tests/contract/test_journal.py",
    ),
    Mutant(
        "a plan is held against the books when it is committed",
        "fast/region/commits.py",
        '    if plan.job in placer.state.allocations:\n        return "the job holds slots already"\n',
        '    if plan.job in placer.state.allocations:\n        return "the job holds slots already"\n'
        '    return ""\n',
        "tests/unit/fast/region",
    ),
    Mutant(
        "GPUs that two attempts hold are noticed",
        "fast/region/inventory/allocation_table.py",
        "        if cleared > gpus:\n            raise RuntimeError(OVERDRAWN)\n",
        "",
        "tests/unit/fast/region/inventory/test_allocation_table.py",
    ),
    Mutant(
        "a relay applies each message once",
        "runtime/relay.py",
        "            if envelope.seq in (0, last + 1):",
        "            if True:",
        "tests/unit/runtime/test_relay.py",
    ),
    Mutant(
        "a relay keeps what has not arrived",
        "runtime/relay.py",
        "if envelope.seq <= event.seq)",
        "if envelope.seq <= event.seq + 1)",
        "tests/unit/runtime/test_relay.py",
    ),
    Mutant(
        "a region that comes while others are asked is asked after them",
        "fast/queue/cycle/requests.py",
        "    decision.held = request.held",
        "    decision.held, decision.changes = request.held, queue.backlog.blocked.changes",
        "tests/unit/fast/queue/cycle/test_liveness.py",
    ),
    Mutant(
        "a link asks for its token, and no other",
        "api/guard.py",
        'if not hmac.compare_digest(given, b"Bearer " + self.token):',
        'if not given.startswith(b"Bearer "):',
        "tests/integration/test_apart.py"
        "::test_a_link_asks_for_its_token_and_a_folder_keeps_its_role",
    ),
    Mutant(
        "a leader that was replaced changes no store",
        "adapters/objects/region.py",
        "            if not leads:\n                raise Halted\n",
        "",
        "tests/contract/test_mover_fence.py::test_a_deletion_that_was_halted_for_long_deletes_nothing"
        "_of_the_next_replica",
    ),
    Mutant(
        "a held job does not start",
        "fast/queue/backlog/backlog.py",
        "            self.aside.add(record)\n            return\n",
        "            self.aside.add(record)\n",
        "tests/unit/fast/queue/test_verbs.py::test_a_held_job_does_not_start_until_it_is_released",
    ),
    Mutant(
        "each job of an act is checked by its own tenant and user",
        "service/verbs.py",
        "                needed = permission if own else Permission.JOBS_OTHERS\n",
        "                needed = permission\n",
        "tests/integration/test_verbs.py::test_each_job_is_judged_by_its_own_tenant_and_user",
    ),
    Mutant(
        "a fleet change on a stale base is refused",
        "fast/queue/machine.py",
        "        if event.base is not UNSET and event.base != fleet_version(self.fleet):\n",
        "        if False:\n",
        "tests/unit/fast/queue/test_verbs.py::test_a_fleet_change_on_a_stale_base_changes_nothing",
    ),
    Mutant(
        "a job is checked by its own tenant",
        "service/verbs.py",
        "sees = partial(self.access.may, caller, Permission.JOBS_VIEW)\n        job =",
        'sees = lambda _: self.access.may(caller, Permission.JOBS_VIEW, "vision")\n        job =',
        f"{TEST_ACCESS}::test_what_belongs_to_another_tenant_is_not_there",
    ),
    Mutant(
        "the jobs of a tenant name only the Secrets that it was given",
        "adapters/engines/far/kubernetes/options.py",
        '    given = options.secrets.get(tenant, "")\n',
        '    given = ",".join(options.secrets.values())\n',
        "tests/unit/adapters/engines/kubernetes/test_objects.py",
    ),
    Mutant(
        "secrets are on no disk",
        f"{LOCAL}/plan.py",
        '        "secrets": gang.spec.secrets or {},\n',
        '        "secrets": gang.spec.secrets or {},\n'
        '        "values": [open(r[5:]).read() for r in (gang.spec.secrets or {}).values()],\n',
        "tests/contract/test_engine_secrets.py::test_tasks_alone_have_the_values",
    ),
    Mutant(
        "a stream ends with the last role of its reader",
        "service/following.py",
        "            if reader is None or not reader.principal.may_somewhere(Permission.JOBS_VIEW):\n",
        "            if reader is None:\n",
        "tests/integration/test_attacks.py::test_a_role_that_is_revoked_ends_what_its_stream_shows",
    ),
    Mutant(
        "a token of a stronger account cannot be had",
        "service/accounts.py",
        '        self._refuse_above(caller, f"sa:{name}")\n',
        "",
        f"{TEST_ACCESS}::test_no_caller_grants_above_the_own_role",
    ),
    Mutant(
        "a revoked token ends the streams that it opened",
        "service/following.py",
        "            if reader is None or not reader.principal.may_somewhere(Permission.JOBS_VIEW):\n"
        "                return\n",
        "            reader = reader or caller\n",
        f"{TEST_ACCESS}::test_an_open_stream_ends_soon_after_its_token_is_revoked",
    ),
    Mutant(
        "a claim is on the disk before anything of the task runs",
        f"{LOCAL}/files.py",
        "    os.fsync(fd)\n    sync_folder(file.parent)\n    return fd\n",
        "    return fd\n",
        f"{TEST_DURABLE}::test_a_claim_is_on_the_disk_before_the_script_runs",
    ),
    Mutant(
        "the end of a task is on the disk before its claim is given up",
        f"{LOCAL}/files.py",
        "    write_json(layout.end(task), end)\n",
        "    write_json(layout.end(task), end, durable=False)\n",
        f"{TEST_DURABLE}::test_an_end_is_on_the_disk_before_the_supervisor_leaves",
    ),
    Mutant(
        "an order to stop is on the disk before it is given",
        f"{LOCAL}/engine.py",
        "            files.write_json(file, order)\n",
        "            files.write_json(file, order, durable=False)\n",
        f"{TEST_DURABLE}::test_an_order_to_stop_is_on_the_disk_before_anyone_hears_of_it",
    ),
    Mutant(
        "an order to stop is looked for after the claim",
        f"{LOCAL}/supervisor.py",
        "        if files.read_json(self.layout.stop(self.attempt)) is not None:\n",
        "        if False:\n",
        "tests/unit/adapters/engines/test_local_supervisor.py"
        "::test_a_stop_that_comes_between_the_claim_and_the_start_is_found",
    ),
    Mutant(
        "a work folder is on the disk before its upload is acknowledged",
        "service/blobs.py",
        "                os.fsync(out.fileno())\n",
        "",
        "tests/unit/service/test_blobs.py"
        "::test_an_archive_is_on_the_disk_before_its_upload_is_acknowledged",
    ),
    Mutant(
        "recovery goes on right behind the snapshot",
        "runtime/recovery.py",
        "journal.records(after=seq, until_s=self._until_s)",
        "journal.records(after=seq + 1, until_s=self._until_s)",
        "tests/unit/runtime/test_recovery.py::test_the_numbers_tell_what_was_read",
    ),
    Mutant(
        "a job that others of its request bear on is read whole",
        "model/files/alike.py",
        '_BOUND = ("secrets", "depends_on")',
        '_BOUND = ("secrets",)',
        "tests/properties/test_alike.py",
    ),
    Mutant(
        "one idempotency key, one job",
        "fast/queue/lifecycle.py",
        "known = queue.jobs.keys.get(event.key) if event.key else None",
        "known = None",
        "tests/unit/fast/queue/test_admission.py::test_one_key_admits_once",
    ),
    Mutant(
        "an eviction is no fault of a host",
        "fast/cluster/gangs.py",
        "            blameless=True,\n            evicted=True,",
        "            blameless=False,\n            evicted=True,",
        "tests/unit/fast/cluster/test_gangs.py::test_the_life_of_a_gang",
    ),
    Mutant(
        "what was stopped for a reason that is not known is not done",
        "fast/cluster/gangs.py",
        "        if event.stopped is True and attempt.phase is not AttemptPhase.STOPPING:\n",
        "        if False:\n",
        "tests/unit/fast/cluster/test_gangs.py::test_the_life_of_a_gang",
    ),
    Mutant(
        "a record says whether its task was told to stop",
        f"{LOCAL}/supervisor.py",
        "        stopped = self._stopping()  # now: what the script left is told to end too\n",
        "        stopped = False\n",
        "tests/contract/test_engine.py::test_an_end_after_a_stop_says_so",
    ),
    Mutant(
        "an operator does not open what its cluster closed",
        "fast/region/applying.py",
        "        state.suspect.pop(fact.host, None)\n    else:",
        "        state.suspect.pop(fact.host, None)\n"
        "        state.closed.pop(fact.host, None)\n    else:",
        "tests/unit/fast/region/test_hosts.py"
        "::test_a_cluster_and_an_operator_do_not_open_the_host_of_the_other",
    ),
    Mutant(
        "a job runs only where the engine can run it",
        "fast/region/inventory/columns.py",
        "return [row for capability in ask.capabilities for row in self.unable[capability]]",
        "return []",
        "tests/unit/fast/region/search/test_capabilities.py"
        "::test_a_job_runs_only_where_the_engine_can_run_it",
    ),
    Mutant(
        "a replaced leader orders nothing",
        "adapters/engines/leader.py",
        "        return leader == self._highest",
        "        return True",
        "tests/unit/adapters/engines/test_leader.py"
        "::test_a_replaced_leader_orders_nothing_any_more",
    ),
    *FAR,
)
