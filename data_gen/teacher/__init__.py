"""The endpoint teacher: any OpenAI-compatible server annotates questions, and writes compound ones."""
