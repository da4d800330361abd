"""What is kept for later: earliest starts, leases of offers, bookings for attempts that move."""
