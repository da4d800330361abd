"""`topmast demo`: a client that injects causes and shows what the system makes of them."""
