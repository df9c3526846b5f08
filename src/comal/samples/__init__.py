"""Samples of any format as columns; readers and writers of archives of samples build on this."""
