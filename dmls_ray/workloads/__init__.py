"""What a rank runs: image classification, a user function or image conversion.

Public for workloads: `base.Workload`. The rest is not public.
"""
