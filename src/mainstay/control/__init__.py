"""The control plane: which services exist and which jobs are due. It changes no host; agents do."""
