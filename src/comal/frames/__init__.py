"""What all frames share: rows in memory, look-up by id, notebooks, other table libraries."""
