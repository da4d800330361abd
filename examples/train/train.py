"""Train a small neural network with numpy: real work, checkpoints, and a clean stop at SIGTERM.

Two interleaved spirals, one hidden layer, Adam. The batch of a step depends on the seed and the step
alone, so a run that was stopped and resumed ends with the very numbers of a run that was not.

    python train.py          works without Topmast too, and keeps its checkpoint in ./checkpoint
"""

import os
import signal
from pathlib import Path

import numpy as np

import topmast

STEPS = int(os.environ.get("STEPS", "4000"))
HIDDEN = int(os.environ.get("HIDDEN", "128"))
RATE = float(os.environ.get("LEARNING_RATE", "0.001"))
CHECKPOINT_EVERY = int(os.environ.get("CHECKPOINT_EVERY", "250"))
BATCH, SEED = 1024, 1
FILE = Path(os.environ.get("TOPMAST_CHECKPOINT_DIR", "checkpoint")) / "model.npz"

State = dict[str, np.ndarray]


def spirals(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of two spirals, and to which of them each belongs."""
    label = rng.integers(0, 2, count)
    turn = 6.0 * np.sqrt(rng.random(count))
    angle = np.pi * (turn + label)
    points = turn[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return points + rng.normal(0.0, 0.05, points.shape), label.astype(float)


def fresh() -> State:
    """A network that has learnt nothing, and Adam's two moments of every weight."""
    rng = np.random.default_rng(SEED)
    weights = {
        "w1": rng.normal(0.0, 1.0, (2, HIDDEN)),
        "b1": rng.normal(0.0, 1.0, HIDDEN),
        "w2": rng.normal(0.0, HIDDEN**-0.5, (HIDDEN, HIDDEN)),
        "b2": np.zeros(HIDDEN),
        "w3": rng.normal(0.0, HIDDEN**-0.5, HIDDEN),
        "b3": np.zeros(1),
    }
    moments = {f"{m}.{name}": np.zeros_like(w) for m in ("m", "v") for name, w in weights.items()}
    return {**weights, **moments, "step": np.array(0)}


def train_step(state: State, step: int) -> tuple[float, float]:
    """One batch, one update; the loss and the accuracy before it."""
    x, y = spirals(np.random.default_rng((SEED, step)), BATCH)
    h1 = np.tanh(x @ state["w1"] + state["b1"])
    h2 = np.tanh(h1 @ state["w2"] + state["b2"])
    logit = h2 @ state["w3"] + state["b3"]
    loss = float(np.mean(np.logaddexp(0.0, logit) - y * logit))

    d3 = (1.0 / (1.0 + np.exp(-logit)) - y) / BATCH
    d2 = np.outer(d3, state["w3"]) * (1.0 - h2**2)
    d1 = (d2 @ state["w2"].T) * (1.0 - h1**2)
    gradients = {
        "w1": x.T @ d1, "b1": d1.sum(0),
        "w2": h1.T @ d2, "b2": d2.sum(0),
        "w3": h2.T @ d3, "b3": d3.sum(keepdims=True),
    }  # fmt: skip
    for name, gradient in gradients.items():
        m, v = state[f"m.{name}"], state[f"v.{name}"]
        m += 0.1 * (gradient - m)
        v += 0.001 * (gradient**2 - v)
        corrected = (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        state[name] -= RATE * corrected
    return loss, float(np.mean((logit > 0) == (y > 0.5)))


def save(state: State, step: int) -> None:
    """Replace the checkpoint: whoever is killed at any moment leaves the old one or the new one."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    part = FILE.with_suffix(".part.npz")
    with part.open("wb") as file:
        np.savez(file, **{**state, "step": np.array(step)})
        file.flush()
        os.fsync(file.fileno())
    part.replace(FILE)
    topmast.progress(step=step, checkpoint=True)


def load() -> State:
    """The last checkpoint, or a fresh network."""
    if not FILE.exists():
        return fresh()
    with np.load(FILE) as saved:
        state = dict(saved)
    print(f"resumed from step {state['step']}")
    topmast.progress(resumed_from=int(state["step"]))
    return state


def main() -> None:
    """Train to the end, or until SIGTERM asks to stop."""
    stopping = False

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    state = load()
    for step in range(int(state["step"]) + 1, STEPS + 1):
        loss, accuracy = train_step(state, step)
        if step % 50 == 0:
            topmast.progress(step=step, loss=loss, accuracy=accuracy)
        if step % 500 == 0:
            print(f"step {step}: loss {loss:.4f}, accuracy {accuracy:.3f}")
        if stopping or step % CHECKPOINT_EVERY == 0 or step == STEPS:
            save(state, step)
        if stopping:
            print(f"asked to stop; saved step {step}")
            return
    weights = sum(float(np.abs(state[name]).sum()) for name in ("w1", "w2", "w3"))
    print(f"done: loss {loss:.6f}, accuracy {accuracy:.3f}, weights {weights:.9f}")


if __name__ == "__main__":
    main()
