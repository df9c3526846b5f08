"""Write columns as containers: ZIP, FOLDER, parts and the indexes over them (TACO 2.0, 6)."""
