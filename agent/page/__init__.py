"""The status page: HTML that is made when asked for, from what has been published."""
