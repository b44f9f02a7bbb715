"""Optimisation proxies: a network learns to solve programs, with a layer that keeps its answers feasible."""
