"""What commands share that talk to a control plane: login, client, properties, plans, progress."""
