"""Reserved hosts: jobs that would not end before do not start there."""
