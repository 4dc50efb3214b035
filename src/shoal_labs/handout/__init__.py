"""What a student gets: the skeleton of a lab, cut from our solution."""
