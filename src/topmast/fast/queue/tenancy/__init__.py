"""Tenants: the tree of quotas, the ledger of what each holds, entitlements, fair shares."""
