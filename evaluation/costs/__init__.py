"""`revelator eval cost`: seconds of work of each service, and what strategies cost with them on other hardware."""
