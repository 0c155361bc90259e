"""Live episodes of a policy and an environment, token in, token out, each fault its own."""
