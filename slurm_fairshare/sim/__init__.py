"""Predict before you change: the policy's own code run on a recorded or an invented workload."""
