"""Implementations of the ports: clocks, stores, engines, object stores."""
