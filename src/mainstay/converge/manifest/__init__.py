"""From text to typed resources. Pure: what it reads of the host is handed in."""
