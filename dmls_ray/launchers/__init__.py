"""Start ranks without Ray: in this process, by spawn, by torchrun or by mpirun.

Not public.
"""
