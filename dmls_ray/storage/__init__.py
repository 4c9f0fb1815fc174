"""Where records are kept: a local folder or an object store.

Not public.
"""
