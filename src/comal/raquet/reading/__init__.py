"""Reading RaQuet files of every version and layout, local and remote."""
