"""Environments, one folder or file each."""
