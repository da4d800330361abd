"""Train a small language model on one GPU, or on the CPU where there is none.

It saves when it is asked to stop (SIGTERM), and goes on from there. The batch of a step depends on the
step alone, so that a run which was stopped is taught the same as one that was not.
"""

import argparse
import os
import signal
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import topmast

WORDS, LENGTH = 256, 128
FILE = Path(os.environ.get("TOPMAST_CHECKPOINT_DIR", "checkpoint")) / "last.pt"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--save-every", type=int, default=500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    return parser.parse_args()


class Model(nn.Module):
    """A transformer that sees only what is before each word."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Parameter(torch.zeros(LENGTH, width))
        layer = nn.TransformerEncoderLayer(
            width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, WORDS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, text: Tensor) -> Tensor:
        seen = self.words(text) + self.places
        return self.out(self.blocks(seen, mask=self.mask, is_causal=True))


def batch(step: int, size: int, device: torch.device) -> Tensor:
    """Texts that count on by a step of their own: what comes next can be known from two words."""
    made = torch.Generator().manual_seed(step)
    begin = torch.randint(0, WORDS, (size, 1), generator=made)
    by = torch.randint(1, 8, (size, 1), generator=made)
    return ((begin + by * torch.arange(LENGTH + 1)) % WORDS).to(device)


def save(model: Model, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Replace the checkpoint: whatever is killed at any moment leaves the old one or the new one."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, FILE.with_suffix(".part"))
    FILE.with_suffix(".part").replace(FILE)
    topmast.progress(step=step, checkpoint=True)


def load(model: Model, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """The step of the last checkpoint; 0 without one."""
    if not FILE.exists():
        return 0
    saved = torch.load(FILE, map_location=device)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    print(f"goes on from step {saved['step']}", flush=True)
    topmast.progress(resumed_from=saved["step"])
    return int(saved["step"])


def main() -> None:
    given, stopping = arguments(), False

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    name = torch.cuda.get_device_name() if on_gpu else "the CPU"
    print(f"trains on {name}, GPUs seen: {torch.cuda.device_count()}", flush=True)
    torch.manual_seed(0)
    model = Model(given.width, given.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    begun = load(model, optimizer, device)

    since, at_s = begun, time.monotonic()
    for step in range(begun + 1, given.steps + 1):
        text = batch(step, given.batch, device)
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            guess = model(text[:, :-1])
        loss = nn.functional.cross_entropy(guess.float().flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            now_s = time.monotonic()
            topmast.progress(step=step, loss=loss.item())
            pace = (step - since) / (now_s - at_s)
            print(f"step {step}: loss {loss.item():.4f}, {pace:.1f} steps/s", flush=True)
            since, at_s = step, now_s
        if stopping or step % given.save_every == 0 or step == given.steps:
            save(model, optimizer, step)
        if stopping:
            print(f"asked to stop; saved step {step}", flush=True)
            return
    weights = sum(float(each.detach().abs().sum()) for each in model.parameters())
    print(f"done: loss {loss.item():.6f}, weights {weights:.4f}")


if __name__ == "__main__":
    main()
