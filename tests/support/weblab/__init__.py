"""A real Chromium, driven by Playwright, and what it looks at pages with."""
