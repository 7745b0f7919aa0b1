"""The agent: runs jobs of the control plane on this host and reports the results. Imports nothing of control/."""
