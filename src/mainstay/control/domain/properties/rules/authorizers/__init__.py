"""Who may set a value, and when. They judge only what comes in a request."""
