"""Generative reward models with axiom-theorem rubrics, and critic-free policy optimisation against them."""

__version__ = "0.1.0"
