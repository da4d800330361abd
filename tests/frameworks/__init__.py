"""Examples of frameworks, run with the frameworks themselves."""
