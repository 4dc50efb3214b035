"""Workers as processes of this machine: started anew or forked, what they run, and what kills the rest of them."""
