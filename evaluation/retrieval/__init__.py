"""`revelator eval recall`: retrieval alone, with the whole question and with the leaves of its plan."""
