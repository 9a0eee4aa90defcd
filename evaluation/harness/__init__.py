"""`revelator eval run`: asks one system the questions of one benchmark and writes a folder."""
