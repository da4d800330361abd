"""The list of commands: which there are, what each does in a sentence, and where it is declared.

The help at the top and suggestions come from here, so that only the module of the command that is
called is imported.
"""

from __future__ import annotations

from typing import NamedTuple


class Listed(NamedTuple):
    """A command, or a group of commands, as the help at the top shows it."""

    module: str
    """The module of this package with the function ``add`` that declares it."""
    said: str
    """The first sentence of its help."""


SECTIONS = {
    "Jobs": {
        "launch": Listed("launch", "Check a job file, and submit the job."),
        "spec": Listed("launch", "The job file of a job, with what was changed since."),
        "queue": Listed("jobs", "The jobs that hold GPUs, then those that wait, by rank."),
        "status": Listed(
            "jobs",
            "The state of a job, its attempts and its history; or the state of a sweep.",
        ),
        "cancel": Listed("verbs", "Cancel jobs, waiting or running."),
        "hold": Listed("verbs", "Keep jobs from starting until they are released."),
        "release": Listed("verbs", "Let jobs start that are held."),
        "suspend": Listed("verbs", "Stop jobs at their checkpoints, and hold them."),
        "resume": Listed("verbs", "Let jobs go on that are suspended."),
        "preempt": Listed(
            "verbs",
            "Stop jobs at their checkpoints; they wait again, and others may come first.",
        ),
        "requeue": Listed("verbs", "Try jobs anew."),
        "edit": Listed(
            "verbs",
            "Change what jobs ask for; of a job that has GPUs, from its next attempt on.",
        ),
        "reprioritize": Listed(
            "verbs",
            "Give jobs another priority; to those that have GPUs, from the next attempt on.",
        ),
        "exec": Listed(
            "execs",
            "Run a command beside a task of a running job, and exit with its code.",
        ),
        "explain": Listed("explain", "Why a job stands where it stands, and what would help."),
        "logs": Listed("launch", "The output of a task of a job, with that of its setup."),
        "wait": Listed("launch", "Wait until jobs have ended."),
        "import": Listed("importing", "Make job files of the files of other schedulers."),
    },
    "Fleet and data": {
        "regions": Listed("fleet", "GPUs, jobs, data, and demand over supply, by region."),
        "hosts": Listed("fleet", "State, place, GPUs and jobs, by host."),
        "gpus": Listed("fleet", "GPUs free, held and unavailable, by model and cluster."),
        "cordon": Listed("hostverbs", "Place no more jobs on hosts; running jobs continue."),
        "uncordon": Listed("hostverbs", "Let hosts take work again."),
        "drain": Listed("hostverbs", "Cordon hosts, and move their jobs to other hosts."),
        "usage": Listed("usage", "GPU-hours held, kept, lost and idle over a period."),
        "clusters": Listed(
            "clusters",
            "Engine, hosts, GPUs and jobs, by cluster; close one to new work, open it.",
        ),
        "tenants": Listed(
            "tenants",
            "Quota used, borrowed and lent, and fair share, by tenant; pause one, resume it.",
        ),
        "reserve": Listed(
            "reserve",
            "Reserve hosts for a while: a job that would not end before does not start there.",
        ),
        "fleet": Listed("fleet_file", "The fleet of a running server, and fleet files."),
        "datasets": Listed("datasets", "List datasets, add one, replicate it, drop a replica."),
    },
    "System": {
        "login": Listed(
            "login",
            "Log in at the provider of the server, with a browser on any device.",
        ),
        "logout": Listed("login", "Revoke the token that is kept for the server, and forget it."),
        "whoami": Listed("accounts", "Show the own name and roles, as the server knows them."),
        "audit": Listed(
            "accounts",
            "Show the acts of people and programs, the newest first; refusals and logins, too.",
        ),
        "up": Listed("up", "Run the whole system in one process, until Ctrl-C."),
        "demo": Listed("composed", "Run a small fleet with training jobs on this machine."),
        "replay": Listed("composed", "Rebuild the past from a state folder."),
        "whatif": Listed("whatif", "Try a change on a copy of the system, and compare."),
        "backup": Listed(
            "database",
            "Write a backup of the database and the work folders, while the server runs or not.",
        ),
        "restore": Listed("database", "Restore a backup into a new state folder."),
        "doctor": Listed(
            "doctor",
            "Check a machine, a database and the clusters of a fleet file before a server "
            "uses them.",
        ),
        "down": Listed("down", "Stop the server of a state folder."),
        "completion": Listed("completion", "Print the script for completion in a shell."),
        "notify": Listed("notify", "Webhooks: tell other systems of what happens."),
        "tokens": Listed("accounts", "Make, list and revoke tokens."),
        "accounts": Listed(
            "accounts",
            "Make, list and remove service accounts, which programs use.",
        ),
        "roles": Listed(
            "accounts",
            "Say which people, groups and service accounts have which role, and where.",
        ),
        "db": Listed("database", "Check, upgrade and move the database of a server."),
        "bench": Listed("bench", "Measure this machine."),
        "plan": Listed("plan", "Solve one planning problem from a file."),
    },
    "Research": {
        "simulate": Listed("simulate", "Run a trace through the scheduler on a virtual fleet."),
        "compare": Listed("simulate", "Run a trace under several profiles, side by side."),
        "calibrate": Listed(
            "calibrate",
            "Fit the times of starts and checkpoints, and speeds, to jobs that really ran.",
        ),
        "reproduce": Listed("reproduce", "Run published experiments and compare."),
        "policies": Listed(
            "policies",
            "List all policies and profiles; show and set the profile of a server.",
        ),
        "allocate": Listed("allocate", "Share the time of workers among jobs."),
        "traces": Listed("traces", "Convert, describe and generate traces of jobs."),
    },
}
"""Commands by name, under the titles and in the order of the help."""

COMMANDS = {name: listed for section in SECTIONS.values() for name, listed in section.items()}
