"""The mean of numbers that are spread over all tasks: task 0 collects them, and tells the result.

A program of several hosts needs what Topmast sets for each task: RANK, WORLD_SIZE, and the address
and port at which task 0 listens.
"""

import os
import random
import socket
import time

PATIENCE_S = 120.0


def connect(address: tuple[str, int]) -> socket.socket:
    """A connection to task 0, which may begin to listen later than this task begins."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(address, timeout=PATIENCE_S)
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)


def main() -> None:
    """Sum up what is here, send it to task 0, and hear the mean of all."""
    rank, tasks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    dice = random.Random(rank)
    mine = sum(dice.random() for _ in range(100_000)) / 100_000
    if rank == 0:
        with socket.create_server(address) as server:
            others = [server.accept()[0] for _ in range(tasks - 1)]
        files = [other.makefile("rw") for other in others]
        mean = (mine + sum(float(file.readline()) for file in files)) / tasks
        for file in files:
            file.write(f"{mean}\n")
            file.flush()
    else:
        with connect(address) as home, home.makefile("rw") as file:
            file.write(f"{mine}\n")
            file.flush()
            mean = float(file.readline())
    print(f"task {rank} of {tasks} on {os.environ['TOPMAST_HOST']}: the mean is {mean:.6f}")


if __name__ == "__main__":
    main()
