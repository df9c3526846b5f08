"""Writing and changing tilesets."""
