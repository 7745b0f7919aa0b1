"""Host convergence: brings this host to the state that a manifest declares."""
