"""The cycle: candidate after candidate, the request to the regions, the auction, the decision."""
