"""What a fleet file may say below ``options`` of a cluster of SSH hosts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from topmast.adapters.engines.far.options import FarOptions
from topmast.adapters.engines.forms import (
    ADDRESS,
    HOST,
    JUMP,
    LINE,
    LISTEN,
    OWN_FOLDER,
    PROGRAM,
    keyed_by,
)

Text = Annotated[str, LINE]


class SshOptions(FarOptions, frozen=True):
    """How hosts are reached, and what they have."""

    listen: Annotated[str, LISTEN] = "unix:"
    """A socket of the engine's own, to which every connection forwards one on its host. With
    ``ADDRESS:PORT`` runners call there by themselves.
    """
    user: Text = ""
    """The account on the hosts; empty: that of this process."""
    port: Annotated[int, Meta(ge=1, le=65_535)] = 22
    identity: Text = ""
    """The file of a private key without a passphrase; empty: the agent's keys, and the usual ones
    in ``~/.ssh``.
    """
    known_hosts: Text = ""
    """A file with the keys of the hosts; empty: ``~/.ssh/known_hosts`` and
    ``/etc/ssh/ssh_known_hosts``. A host that is not in it is not used.
    """
    jump: Annotated[str, JUMP] = ""
    """``[USER@]HOST[:PORT],...``: the hosts to go through on the way."""
    address: Annotated[dict[str, Annotated[str, ADDRESS]], keyed_by(HOST, default=False)] = field(
        default_factory=dict
    )
    """``address.HOST: 10.0.0.7``: where a host is reached, if not by its own name."""
    python: Annotated[str, PROGRAM] = "python3"
    """Python 3.8 or newer on the hosts."""
    folder: Annotated[str, OWN_FOLDER] = ".topmast-ssh"
    """A private folder on each host, below the home of the account unless it begins with ``/``.
    It keeps what survives a restart of the host.
    """
    connect_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """A connection that takes longer is given up, and tried again."""
    command_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """A host that takes longer to answer is cut off, and connected anew."""
