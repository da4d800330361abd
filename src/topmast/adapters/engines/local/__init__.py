"""The local engine: gangs as processes of this machine, on hosts that are processes too.

`engine.py` is what Topmast sees. `agent.py` is a host, `supervisor.py` a task on it; both live in
processes of their own that outlast Topmast, and import nothing but the standard library.
"""
