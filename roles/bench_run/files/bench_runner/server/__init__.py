"""The server under test: the control socket, the engines' dialects, and its life from start to stop."""
