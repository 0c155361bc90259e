"""For all tests: how fast an example runs says nothing about the code on a machine that does other things too."""

from hypothesis import HealthCheck, settings

settings.register_profile("axiomrm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("axiomrm")
