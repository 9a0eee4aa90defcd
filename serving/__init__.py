import logging

logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # peft imports it; it warns of a CPU kernel not used here
