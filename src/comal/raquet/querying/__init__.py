"""Questions to RaQuet files: SQL with the functions that its users know, and zonal statistics."""
