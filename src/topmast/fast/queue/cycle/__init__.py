"""The cycle: candidate after candidate, the request to the regions, the auction, the decision.

`Cycle` is its working memory. Here the five parts of the state come together (`state`), since a
decision needs them all: the steps take the whole queue, and change it by facts.
"""
