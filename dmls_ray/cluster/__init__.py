"""Ray: the cluster, its worker groups, the scheduler and Ray Tune. No other package imports Ray.

Not public.
"""
