"""`revelator eval cost`: measures the seconds of work of each service, and predicts costs on other hardware."""
