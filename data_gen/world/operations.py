"""How an answer follows from the answers of the steps, by the name that `AnnotatedQuestion.operation` holds.

A branch is an operand of the plan's outermost `+`, or the whole plan. An operation may carry an argument after a space.
"""

OPERATIONS = {
    "none": "the value of the last step",
    "list": "the values of the last leaf, each once",
    "both": "the values of all branches, in order",
    "argmin": "what the last leaf with the least value was asked about",
    "argmax": "what the last leaf with the greatest value was asked about",
    "argmin_source": "the name with which the branch of the least value begins",
    "argmax_source": "the name with which the branch of the greatest value begins",
    "argmin_count": "what the leaf with the shortest list was asked about",
    "argmax_count": "what the leaf with the longest list was asked about",
    "same": "yes if all branches end in the same value, else no",
    "difference": "the distance between the numbers (of dates: the years) in which two branches end",
    "count": "how many values the last leaf has",
    "count_is": "how many answers of the last leaf are the argument",
    "count_after": "how many answers of the last leaf are greater than the argument",
    "intersect": "the values that the lists of both branches share",
    "computed": "worked out from the question alone",
}
