"""Dynamics of bodies linked by strings: a recurrent model with and without a layer that respects the strings."""
