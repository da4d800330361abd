"""Jobs from admission to their end: the record of each, the numbers given out, what is placed.

Changed by facts alone (`applying`). Nothing here knows in what order jobs are tried, or where.
"""
