"""A real Kubernetes to test with: control plane and nodes as processes of this machine."""
