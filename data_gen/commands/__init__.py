"""The commands `revelator data …`."""
