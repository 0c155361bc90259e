"""What is kept of past rollouts and used again: the buffer, its correction, rescue and re-scoring."""
