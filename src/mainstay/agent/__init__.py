"""Where the halves meet: what was ordered in the control plane is brought about on this host, and reported back."""
