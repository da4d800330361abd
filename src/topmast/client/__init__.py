"""The typed Python client of the REST interface: ``with topmast.Client() as client: ...``."""

from topmast.client.client import Client, UsageReport, WaitTimeout
from topmast.client.documents import Job, document_of
from topmast.client.logs import LogChunk
from topmast.client.workdir import Snapshot, snapshot

__all__ = [
    "Client",
    "Job",
    "LogChunk",
    "Snapshot",
    "UsageReport",
    "WaitTimeout",
    "document_of",
    "snapshot",
]
