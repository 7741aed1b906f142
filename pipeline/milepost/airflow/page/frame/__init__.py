"""The frame of all pages: rights, templates and headers, figures as people read them."""
