"""The addresses of the server, a module for each family of them. What they answer with is made
elsewhere; here is who may ask, and in which form."""
