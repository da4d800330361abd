"""Policies that share time: which job runs for which part of it on which worker type (Gavel).

A problem is read (`reading`), turned into columns (`columns`), and solved by one of the policies in
`objectives`. Each of them is one linear program or a few (`program`). `registry` lists them by
name.
"""
