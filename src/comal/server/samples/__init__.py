"""Samples of TACO and Tortilla as the server shows them: rows, places, pages, features."""
