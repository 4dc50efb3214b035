"""What a run is made of (`schema`), the kinds of values it takes (`kinds`), and how it is read and written (`read`).

More than fifteen modules, because each form of settings has its own: recipes, flags, a ds_config, a JSON schema.
"""
