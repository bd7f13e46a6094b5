"""What Git declares: environments, endpoints, the Pulumi program over them, and the command line around it."""
