"""Turn records into results, tables, summaries, comparisons, advice, figures and reports; loads no PyTorch or Ray."""
