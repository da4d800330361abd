"""Policies that share time: which job runs for which fraction of it on which type of worker (Gavel).

A problem is read (`reading`), turned into columns (`columns`), and solved by one of the policies in
`objectives`, each of which is a linear program or a few of them (`program`). `registry` knows them by name.
"""
