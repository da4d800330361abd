"""A Slurm cluster that keeps accounts: slurmdbd over a MariaDB of its own, in the cluster's folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tests.support.live import free_ports
from tests.support.slurmlab import SlurmCluster


@dataclass
class AccountedCluster(SlurmCluster):
    """Each job needs an account, a quality of service and a key that its user may use."""

    ENFORCED: ClassVar = "associations,limits,qos,wckeys"

    def start_controller(self) -> None:
        """The database first: a controller that enforces accounts does not start without it."""
        if "slurmdbd" not in self._daemons:
            self._start_accounting()
        super().start_controller()

    def _start_accounting(self) -> None:
        database, accounts = free_ports(2)
        with self.conf.open("a") as conf:
            conf.write(
                "AccountingStorageType=accounting_storage/slurmdbd\n"
                f"AccountingStorageHost=127.0.0.1\nAccountingStoragePort={accounts}\n"
                f"AccountingStoragePass={self.folder}/munge.sock\n"
                f"AccountingStorageEnforce={self.ENFORCED}\nTrackWCKey=yes\n"
            )
        file = self.folder / "slurmdbd.conf"
        file.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={self.folder}/munge.sock\n"
            f"DbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={accounts}\nSlurmUser=root\n"
            f"LogFile={self.folder}/log/slurmdbd.log\nPidFile={self.folder}/slurmdbd.pid\n"
            "StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n"
            f"StoragePort={database}\nStorageUser=root\nStorageLoc=accounts\nTrackWCKey=yes\n"
        )
        file.chmod(0o600)
        data = self.folder / "database"
        data.mkdir()
        self._spawn(
            "mariadbd", "mariadbd", "--no-defaults", f"--datadir={data}", "--user=root",
            "--skip-grant-tables", "--bind-address=127.0.0.1", f"--port={database}",
            f"--socket={self.folder}/mariadb.sock", f"--pid-file={self.folder}/mariadb.pid",
            "--innodb-lock-wait-timeout=900",
        )  # fmt: skip
        self.until((self.folder / "mariadb.sock").exists, "no socket of the database")
        self._spawn("slurmdbd", "slurmdbd", "-D")
        self.until(lambda: self._knows("cluster"), "no slurmdbd")
        self.account("add", "cluster", self.name)

    def _knows(self, what: str) -> bool:
        # It prints its heading as soon as the database has answered.
        return "Cluster" in self.run("sacctmgr", "-P", "show", what, check=False)

    def account(self, *words: str) -> None:
        """A change of what is kept, as a site's people make it."""
        self.run("sacctmgr", "-i", *words)
