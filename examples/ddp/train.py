"""Data-parallel training as any PyTorch tutorial has it: it knows nothing of Topmast.

`torchrun` starts it, on as many hosts as there are. It goes on from its last checkpoint.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    return parser.parse_args()


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Each rank has its own part of the data: points, and whether they lie inside a circle."""
    generator = torch.Generator().manual_seed(1_000_003 * rank + step)
    points = torch.rand(64, 2, generator=generator) * 2 - 1
    return points, (points.square().sum(1, keepdim=True) < 0.5).float()


def main() -> None:
    given = arguments()
    torch.manual_seed(0)
    on_gpus = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpus else "gloo")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    # A task with one GPU sees that alone, as number 0; torchrun's processes see all of their host.
    gpu = local_rank % max(1, torch.cuda.device_count())
    device = torch.device("cuda", gpu) if on_gpus else torch.device("cpu")

    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    file, begun = given.checkpoints / "last.pt", 0
    if file.exists():
        saved = torch.load(file, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begun = saved["step"]
    parallel = DistributedDataParallel(model)

    for step in range(begun + 1, given.steps + 1):
        points, inside = batch(rank, step)
        loss = nn.functional.binary_cross_entropy_with_logits(
            parallel(points.to(device)), inside.to(device)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % given.save_every == 0:
            given.checkpoints.mkdir(parents=True, exist_ok=True)
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step,
            }
            torch.save(state, file.with_suffix(".part"))
            file.with_suffix(".part").replace(file)

    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    everywhere = [torch.zeros_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(everywhere, weights)
    alike = all(torch.equal(weights, other) for other in everywhere)
    print(
        f"rank {rank} of {dist.get_world_size()}: loss {loss.item():.4f}, "
        f"weights {'alike' if alike else 'DIFFERENT'} on all ranks",
        flush=True,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
