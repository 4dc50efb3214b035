"""`shoal memory`: what a step of training needs, by formula and as measured."""
