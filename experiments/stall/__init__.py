"""Fig. 1: interpolation in place of an orthogonal projection stalls; descent on f o g converges."""
