"""What a run is made of (`schema`), the kinds of values it takes (`kinds`), and how it is read and written (`read`)."""
