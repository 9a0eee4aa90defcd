// What people read in place of the names that a trace has.

const NAMES = {
  atomic: "step", dependent: "one after the other", sequence: "side by side", // kinds of node
  direct: "without documents", straightforward: "without documents", // a kind and a call of it, and its route
  degraded: "not finished", // of a plan
};

export const nameOf = (word) => NAMES[word] ?? word;
export const nameRoute = (route) => (route === "atomic" ? "tree" : nameOf(route));

// A version of the revelator: a number of the registry, 0 for the embedded base, or what an endpoint calls its model.
export const nameVersion = (version) => (version === "0" ? "embedded base" : /^\d/.test(version) ? `version ${version}` : version);
