"""For all tests: how fast an example runs says nothing about the code on a machine that does other things too, and
a shell in the background, whose children ignore Ctrl-C, is not what the tests of Ctrl-C are about."""

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("axiomrm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("axiomrm")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
