"""The digits images of scikit-learn as a dataset: two files that training scripts can map.

python -m topmast.demo.digits DIR
topmast datasets add digits --region east --source DIR
"""

from __future__ import annotations

import sys
from pathlib import Path

IMAGES = "images.npy"
LABELS = "labels.npy"


def export(folder: Path) -> None:
    """Write the 1,797 images, as rows of 64 numbers from 0 to 1, and what digit each shows."""
    # Imported here: the training script reads the names above, and needs neither.
    import numpy as np
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / IMAGES, (images / 16.0).astype(np.float32))
    np.save(folder / LABELS, labels.astype(np.int64))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m topmast.demo.digits DIR")
    export(Path(sys.argv[1]))
