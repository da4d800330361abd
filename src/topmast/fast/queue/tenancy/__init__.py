"""Tenants: the tree of quotas, the ledger of what each holds, entitlements, fair shares.

`Tenancy` has them all. It knows no job: it is asked about requests, and told of plans.
"""
