"""Why a trial is as fast as it is: the parts of a step, what bounds it, and what more ranks add."""
