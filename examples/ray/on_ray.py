"""Run a command on a Ray cluster that the tasks of one job make: `on_ray.py COMMAND...` in each.

Task 0 is the head. The others join it by the address that every task is given. The command runs in
task 0 once all have joined, with RAY_ADDRESS set. When it ends, the cluster ends, and the job has
its exit status. Nothing but this job's own Ray is stopped: `ray stop` would end others as well.
"""

import json
import os
import signal
import subprocess
import sys
import time

RANK = int(os.environ["TOPMAST_RANK"])
TASKS = int(os.environ["TOPMAST_WORLD_SIZE"])
ADDRESS = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
GPUS = os.environ["TOPMAST_GPUS_PER_TASK"]
CPUS = os.environ.get("RAY_CPUS", "1")
PATIENCE_S = float(os.environ.get("RAY_PATIENCE_S", "300"))
COUNT = "import json, ray; ray.init(log_to_driver=False); print(json.dumps(len(ray.nodes())))"


def start() -> subprocess.Popen[bytes]:
    """Ray's processes of this host, below one that ends them when it is told to end."""
    words = ["ray", "start", "--block", "--disable-usage-stats"]
    words += [f"--num-gpus={GPUS}", f"--num-cpus={CPUS}"]
    if RANK == 0:
        host, _, port = ADDRESS.rpartition(":")
        words += ["--head", f"--node-ip-address={host}", f"--port={port}"]
        words += ["--include-dashboard=false"]
    else:
        words += [f"--address={ADDRESS}"]
    # Those that joined notice soon that the head has ended, not after a minute.
    patience = {"RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
    return subprocess.Popen(words, env={**os.environ, **patience}, stdout=sys.stderr)


def joined() -> int:
    """How many tasks the cluster has so far."""
    asked = subprocess.run(
        [sys.executable, "-c", COUNT],
        capture_output=True,
        env={**os.environ, "RAY_ADDRESS": ADDRESS},
    )
    return int(json.loads(asked.stdout)) if asked.returncode == 0 else 0


def lead(ray: subprocess.Popen[bytes]) -> int:
    """Wait for all tasks, then run the command; its exit status."""
    until_s = time.monotonic() + PATIENCE_S
    while joined() < TASKS:
        if ray.poll() is not None or time.monotonic() > until_s:
            print(f"not all {TASKS} tasks joined {ADDRESS}", file=sys.stderr)
            return 1
        time.sleep(0.5)
    command = subprocess.Popen(sys.argv[1:], env={**os.environ, "RAY_ADDRESS": ADDRESS})
    signal.signal(signal.SIGTERM, lambda *_: command.terminate())
    status = command.wait()
    ray.terminate()
    ray.wait()
    return status if status >= 0 else 128 - status


def follow(ray: subprocess.Popen[bytes]) -> int:
    """Serve until the head ends: its status is the job's, and not this task's."""
    signal.signal(signal.SIGTERM, lambda *_: ray.terminate())
    ray.wait()
    return 0


def main() -> int:
    if len(sys.argv) < 2:
        print("usage: on_ray.py COMMAND...", file=sys.stderr)
        return 2
    ray = start()
    return lead(ray) if RANK == 0 else follow(ray)


if __name__ == "__main__":
    sys.exit(main())
