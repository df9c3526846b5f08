"""Reading tiles by range."""
