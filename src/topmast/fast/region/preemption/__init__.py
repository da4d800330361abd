"""What may happen to a running attempt, and its price: it is stopped, moved, or made smaller."""
