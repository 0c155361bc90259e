"""Does a process reward deserve a place in training? Asked of recorded rollouts."""
