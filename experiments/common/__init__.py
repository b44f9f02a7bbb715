"""What every experiment needs: a store of results, progress, worker processes, drawing, claims, the report."""
