"""Samples of any format as columns: what writes and reads archives of samples starts here."""
