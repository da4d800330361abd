"""The slow path beside the running system: when a plan is due, its problem, its answer, its orders.

Nothing here has a clock or a thread. A thread drives a cadence in a server (`service.planning`), the event
heap drives it in a simulation (`sim.planning`); everything else is the same in both. The fast path never
waits for a plan.
"""
