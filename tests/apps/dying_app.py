"""A module that does not survive its import."""

import os
import signal

os.kill(os.getpid(), signal.SIGKILL)
