"""Data placement: which regions hold which tables, and how near to the best the answer is.

`reading` reads a problem, `planner` solves it, `answer` says what was decided. Everything in
between works on `columns`: arrays by number of table, region, workload and GPU model.
"""
