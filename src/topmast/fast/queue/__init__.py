"""The world: tenants, ranking, the data catalogue and the auction over regions."""
