"""The data mover: datasets between region stores, over obstore (directories, S3, GCS, Azure).

`StoreMover` is the way in. `transfer` holds the steps of one copy, `region` all that touches a
store, `layout` the names within it.
"""

from __future__ import annotations

from topmast.adapters.objects.mover import StoreMover
from topmast.adapters.objects.region import StoreError

__all__ = ["StoreError", "StoreMover"]
