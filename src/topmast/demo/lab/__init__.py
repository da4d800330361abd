"""Real clusters on this machine, for the demo and for tests: they live in one folder, on loopback
and in namespaces, and leave nothing behind.
"""
