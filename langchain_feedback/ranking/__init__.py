"""From feedback to an order of chunks: pure functions on NumPy arrays, without I/O.

`attribution` says which chunks a vote speaks of, `kernels` how much a past question says
about this one, `belief` what all of it says about a chunk, and `policies` what that does to
the order. `views` holds what the policies read and give.
"""
