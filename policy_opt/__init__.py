"""Critic-free policy optimisation on per-turn rewards, with replay. Importing this loads no torch."""
