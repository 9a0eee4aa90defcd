"""`revelator eval run`: one system on one benchmark becomes a folder of answers, scores and costs."""
