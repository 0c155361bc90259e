"""Can the judge be gamed, is it noticed in time, and does the guard help? See ``run.py``."""
