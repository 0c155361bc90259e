"""Engines: what runs a language model."""
