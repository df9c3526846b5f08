"""One module per kind of source; nothing here is imported before such a source is opened."""
