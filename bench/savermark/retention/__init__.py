"""Retention: a policy becomes a plan (pure), the plan is applied, and the result is re-read.

`policy` says what to keep, `plan` computes what that would delete without touching anything,
`apply` carries it out with one transaction a thread, `verify` proves that nothing needed was lost.
"""
