"""The slow path beside the running system: when a plan is due, its problem, its answer, its orders.

Nothing here has a clock or a thread. In a server a thread drives a cadence (`service.planning`), in
a simulation the event heap (`sim.planning`); all else is the same in both. The fast path never
waits for a plan.
"""
