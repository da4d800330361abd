"""Trains a small network on the digits images, by mini-batch gradient descent in plain numpy.

This is what the jobs of the demo run. It shows what a training script owes its scheduler: go on
from the last checkpoint, save one now and then and when told to stop, say how far it is. With
several tasks, each takes its share of every batch and the gradients are averaged.

    TOPMAST_DATASET_DIGITS=DIR python -m topmast.demo.train --steps 100
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import topmast
from topmast.demo.digits import IMAGES, LABELS
from topmast.demo.gang import Gang, PeerLost, join

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

STOPPED = 128 + signal.SIGTERM
PEER_PATIENCE_S = 10.0
"""How long a task that lost its peer waits for the order to stop that may have ended the peer."""


class Network:
    """One hidden layer (or none) and a softmax; the parameters are one flat vector."""

    def __init__(self, hidden: int, seed: int, inputs: int = 64, classes: int = 10) -> None:
        widths = [inputs, hidden, classes] if hidden else [inputs, classes]
        self._shapes = [shape for a, b in itertools.pairwise(widths) for shape in ((a, b), (b,))]
        random = np.random.default_rng(seed)
        parts = [
            random.normal(0.0, shape[0] ** -0.5, shape) if len(shape) == 2 else np.zeros(shape)
            for shape in self._shapes
        ]
        self.weights: Floats = np.concatenate([p.ravel() for p in parts]).astype(np.float32)

    def _parts(self, vector: Floats) -> list[Floats]:
        """The matrices and biases of a flat vector, as views of it."""
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        cuts = np.cumsum(sizes)[:-1]
        return [
            p.reshape(shape) for p, shape in zip(np.split(vector, cuts), self._shapes, strict=True)
        ]

    def _forward(self, images: Floats) -> tuple[list[Floats], Floats]:
        """The input of each layer, and the probability of each class."""
        *hidden, (matrix, bias) = _pairs(self._parts(self.weights))
        inputs = [images]
        for inner, offset in hidden:
            inputs.append(np.maximum(inputs[-1] @ inner + offset, 0.0))
        scores = inputs[-1] @ matrix + bias
        grown = np.exp(scores - scores.max(axis=1, keepdims=True))
        return inputs, grown / grown.sum(axis=1, keepdims=True)

    def gradient(self, images: Floats, labels: Ints) -> Floats:
        """Of the mean cross-entropy over a batch, flat."""
        inputs, chances = self._forward(images)
        pairs = _pairs(self._parts(self.weights))
        error = chances
        error[np.arange(len(labels)), labels] -= 1.0
        error /= len(labels)
        flat: list[Floats] = []
        for layer in range(len(pairs) - 1, -1, -1):
            flat[:0] = [(inputs[layer].T @ error).ravel(), error.sum(axis=0)]
            if layer:
                error = (error @ pairs[layer][0].T) * (inputs[layer] > 0.0)
        return np.concatenate(flat).astype(np.float32)

    def measure(self, images: Floats, labels: Ints) -> tuple[float, float]:
        """Mean cross-entropy, and the share of images told right."""
        _, chances = self._forward(images)
        right = chances[np.arange(len(labels)), labels]
        loss = float(-np.log(np.maximum(right, 1e-9)).mean())
        return loss, float((chances.argmax(axis=1) == labels).mean())


def _pairs(parts: list[Floats]) -> list[tuple[Floats, Floats]]:
    return list(zip(parts[::2], parts[1::2], strict=True))


class Checkpoint:
    """The step and the parameters in one file, which is there whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "checkpoint.npz"

    def load(self) -> tuple[int, Floats] | None:
        """What was saved last."""
        if not self._file.exists():
            return None
        with np.load(self._file) as saved:
            return int(saved["step"]), saved["weights"]

    def save(self, step: int, weights: Floats) -> None:
        """Replace what was saved before; durable when this returns."""
        new = self._file.with_suffix(".new")
        with new.open("wb") as file:
            np.savez(file, step=step, weights=weights)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file)


class Training:
    """One task's part of the work."""

    def __init__(self, options: argparse.Namespace, gang: Gang, data: Path, saved: Path) -> None:
        self.options = options
        self.gang = gang
        self.images: Floats = np.load(data / IMAGES)
        self.labels: Ints = np.load(data / LABELS)
        self.network = Network(options.hidden, options.seed)
        self.checkpoint = Checkpoint(saved)
        self.step = 0
        self.told_to_stop = False

    def stop(self, *_: object) -> None:
        """On SIGTERM: finish the step, save, leave."""
        self.told_to_stop = True

    def run(self) -> int:
        """Train to the last step, or until told to stop; the exit status."""
        self._begin()
        try:
            while self.step < self.options.steps:
                began_s = time.monotonic()
                stopping = self._one_step()
                if stopping:
                    self._save()
                    _say(f"stopped at step {self.step}")
                    return STOPPED
                if self.step % self.options.save_every == 0 or self.step == self.options.steps:
                    self._save()
                time.sleep(max(0.0, began_s + self.options.step_s - time.monotonic()))
        except PeerLost as error:
            return self._lost(error)
        _say("done")
        return 0

    def _begin(self) -> None:
        """Load the checkpoint, the same in all tasks: the first sends it to the others."""
        found = self.checkpoint.load() if self.gang.first else None
        start = np.zeros(1, dtype=np.float32)
        if found is not None:
            start[0], self.network.weights = found[0], found[1]
        told = self.gang.share(np.concatenate([start, self.network.weights]))
        self.step, self.network.weights = int(told[0]), told[1:].copy()
        if not self.gang.first:
            return
        if found is not None:
            topmast.progress(step=self.step, resumed_from=self.step)
            _say(f"resumed from step {self.step}")
        self._tell()

    def _one_step(self) -> bool:
        """Descend once; whether any task of the gang was told to stop."""
        # A batch depends on the seed and the step alone: a resumed run takes the same way.
        random = np.random.default_rng([self.options.seed, self.step])
        batch = random.choice(len(self.labels), self.options.batch, replace=False)
        mine = batch[self.gang.rank :: self.gang.size]
        gradient = self.network.gradient(self.images[mine], self.labels[mine])
        gradient, stopping = self.gang.average(gradient, self.told_to_stop)
        self.network.weights = self.network.weights - np.float32(self.options.rate) * gradient
        self.step += 1
        return stopping

    def _save(self) -> None:
        if not self.gang.first:
            return
        self.checkpoint.save(self.step, self.network.weights)
        self._tell(checkpoint=True)

    def _tell(self, checkpoint: bool = False) -> None:
        loss, accuracy = self.network.measure(self.images, self.labels)
        topmast.progress(step=self.step, checkpoint=checkpoint, loss=loss, accuracy=accuracy)
        _say(f"step {self.step} loss {loss:.4f} accuracy {accuracy:.4f}")

    def _lost(self, error: PeerLost) -> int:
        """A peer is gone: if the whole gang is being stopped, save what this task has."""
        deadline_s = time.monotonic() + PEER_PATIENCE_S
        while not self.told_to_stop and time.monotonic() < deadline_s:
            time.sleep(0.02)
        if self.told_to_stop:
            self._save()
            _say(f"stopped at step {self.step}: {error}")
            return STOPPED
        _say(f"failed at step {self.step}: {error}")
        return 1


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def read_options(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=100, help="train to this step")
    parser.add_argument("--hidden", type=int, default=32, help="width of the hidden layer; 0: none")
    parser.add_argument("--rate", type=float, default=0.3, help="learning rate")
    parser.add_argument("--batch", type=int, default=128, help="images in a step, over all tasks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--step-s", type=float, default=0.0, help="what a step takes at least")
    return parser.parse_args(arguments)


def main() -> int:
    """One task of a job; without Topmast the only one."""
    options = read_options(sys.argv[1:])
    data = Path(os.environ["TOPMAST_DATASET_DIGITS"])
    saved = Path(os.environ.get("TOPMAST_CHECKPOINT_DIR", "."))
    training: Training | None = None
    told_early = False

    def stop(*_: object) -> None:
        nonlocal told_early
        told_early = True
        if training is not None:
            training.stop()

    signal.signal(signal.SIGTERM, stop)
    try:
        gang = join(os.environ, lambda: told_early)
    except PeerLost as error:
        _say(f"the tasks of the gang did not connect: {error}")
        return STOPPED if told_early else 1
    with gang:
        training = Training(options, gang, data, saved)
        if told_early:
            training.stop()
        return training.run()


if __name__ == "__main__":
    sys.exit(main())
