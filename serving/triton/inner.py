"""What an inner model takes at most, before anything is made of a request: it has one instance, and others wait."""

PROMPT_BYTES, PROMPTS_BYTES = 131_072, 524_288  # each prompt, and all of one request; 1 MB takes a tokenizer 1.5 s
QUERY_BYTES = 131_072  # a logical query of 20,000 characters in any script
READING_BYTES = 8_388_608  # question and passages
