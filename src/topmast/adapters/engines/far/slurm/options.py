"""What a fleet file may say below ``options`` of a Slurm cluster."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from topmast.adapters.engines.far.options import FarOptions
from topmast.adapters.engines.forms import FILLED, MODEL, PROGRAM, SLURM_TIME, TENANT, keyed_by

ByTenant = Annotated[dict[str, str], keyed_by(TENANT, default=True)]
"""``account: x`` for all, ``account.TENANT: y`` for one: key "" and key TENANT."""
BY_TENANT = ("partition", "account", "qos", "wckey", "reservation", "constraint")
"""The options that may differ by tenant, each called as `sbatch` calls it."""
ANY_TYPE = "any"


class SlurmOptions(FarOptions, frozen=True):
    """How a site wants jobs to be submitted; what is not said is left to Slurm's defaults."""

    partition: ByTenant = field(default_factory=dict)
    account: ByTenant = field(default_factory=dict)
    qos: ByTenant = field(default_factory=dict)
    wckey: ByTenant = field(default_factory=dict)
    reservation: ByTenant = field(default_factory=dict)
    constraint: ByTenant = field(default_factory=dict)
    gpu: Annotated[dict[str, Annotated[str, FILLED]], keyed_by(MODEL, default=False)] = field(
        default_factory=dict
    )
    """``gpu.H100: nvidia_h100_80gb``: the site's type of a GPU model; ``any``: its GPUs have none.
    A model that is not listed is of the type of its own name.
    """
    host_prefix: str = ""
    """What names of hosts in the fleet file have before those of Slurm: for two clusters of which
    each has a ``node01``.
    """
    cpus_per_gpu: Annotated[float, Meta(ge=0, le=65_536)] = 0.0
    """CPUs for each GPU of a part that asks for none itself; Slurm would give it one."""
    memory_mib_per_gpu: Annotated[int, Meta(ge=0, le=1 << 30)] = 0
    """Memory for each GPU of a part that asks for none itself; Slurm's default may be all."""
    exclusive: bool = False
    """Whole hosts: no other job runs beside a part."""
    time_limit: Annotated[str, SLURM_TIME] = ""
    """As ``sbatch --time`` says it, for parts without a limit; empty: the partition's default."""
    conf: str = ""
    """The path of slurm.conf, where it is not at its usual place."""
    bin: str = ""
    """The folder of Slurm's commands, where they are not on PATH."""
    ssh: str = ""
    """``USER@LOGIN-NODE``, where Slurm's commands are run by ``ssh``; empty: here."""
    ssh_config: str = ""
    """The path of a configuration for ``ssh``, instead of the usual ones."""
    python: Annotated[str, PROGRAM] = "python3"
    """Python 3.8 or newer on the hosts."""
    command_s: Annotated[float, Meta(gt=0, le=600)] = 20.0
    """A command that takes longer is ended: the controller does not answer."""

    @property
    def tenants(self) -> list[str]:
        """Those for which something of its own is said, by name."""
        named = {tenant for option in BY_TENANT for tenant in getattr(self, option)}
        return sorted(named - {""})

    def of_tenant(self, option: str, tenant: str) -> str:
        """What such an option says for jobs of ``tenant``; empty if nothing."""
        said: ByTenant = getattr(self, option)
        return said.get(tenant, said.get("", ""))

    def differs(self, option: str, tenant: str) -> bool:
        """Whether such an option says something of its own for jobs of ``tenant``."""
        said: ByTenant = getattr(self, option) if option in BY_TENANT else {}
        return tenant in said

    def gpu_type(self, model: str) -> str:
        """What Slurm calls a GPU model; empty if GPUs have no types there."""
        called = self.gpu.get(model, model)
        return "" if called == ANY_TYPE else called
