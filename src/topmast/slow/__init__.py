"""The slow planners: minutes to hours, beside the queue and never in its way."""
