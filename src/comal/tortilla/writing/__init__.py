"""Writing Tortilla 0.5: new files, sets of parts, and changes that never endanger the old bytes."""
