"""One sweep from its axes to its results: plan, check, run, record.

Not public, except `dmls_ray.sweep` and `dmls_ray.make_plan`.
"""
