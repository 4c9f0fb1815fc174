"""Turn records into results, tables, summaries, comparisons, advice, figures and reports; loads no PyTorch or Ray.

Not public, except `dmls_ray.SweepResults` and `dmls_ray.load`, and `table.presentation.Presentation` and
`findings.sweep_trials.Questions` for workloads.
"""
