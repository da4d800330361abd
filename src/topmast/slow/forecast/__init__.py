"""Forecasts of what a day's work will read and need, from what earlier days read and needed.

`history` holds the accesses, `smoothing` forecasts from them, `errors` holds days out to choose how
much to smooth and to say how wrong it is, `scenarios` draws days that may come.
"""
