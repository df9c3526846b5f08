"""From pixels to pictures: parameters, expressions, colours, encoders."""
