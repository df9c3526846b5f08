"""What users hand over to be packed: folders and manifests, as columns and never as objects."""
