"""`revelator demo`: the whole way in one command, step by step, that goes on where it stopped."""
