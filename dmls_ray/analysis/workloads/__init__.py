"""How the results of each workload are read: what it adds to tables, figures and answers."""
