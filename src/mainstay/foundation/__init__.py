"""Shared by host convergence and the control plane. Imports no other package of mainstay."""
