"""Checking tilesets: structure, places, documents and contents."""
