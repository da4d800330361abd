"""A Ray program: it estimates pi on all hosts of the cluster that it is connected to."""

import os
import random
import socket

import ray

DRAWS = int(os.environ.get("DRAWS", "200000"))


@ray.remote(num_gpus=1, scheduling_strategy="SPREAD")
def inside(seed: int) -> tuple[int, str]:
    """Of so many random points, how many lie inside the circle; and the node that drew them."""
    draw = random.Random(seed)
    hits = sum(draw.random() ** 2 + draw.random() ** 2 < 1 for _ in range(DRAWS))
    return hits, ray.get_runtime_context().get_node_id()


def main() -> None:
    ray.init()
    gpus = int(ray.cluster_resources()["GPU"])
    parts = ray.get([inside.remote(seed) for seed in range(2 * gpus)])
    nodes = {node for _, node in parts}
    hits = sum(part for part, _ in parts)
    print(f"pi is about {4 * hits / (DRAWS * len(parts)):.2f}", flush=True)
    print(
        f"{len(parts)} parts on {len(nodes)} nodes, driven from {socket.gethostname()}", flush=True
    )


if __name__ == "__main__":
    main()
