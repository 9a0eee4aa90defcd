// A trace as far as its events have come (revelator/trace_events.py), and its nodes in the order of the tree.

export class Replay {
  #whole = {};
  #nodes = new Map();

  add({ node, changes, at_ms }) {
    if (node !== null && !this.#nodes.has(node)) this.#nodes.set(node, {});
    Object.assign(node === null ? this.#whole : this.#nodes.get(node), changes);
    this.atMs = at_ms;
  }

  trace() {
    return { ...this.#whole, nodes: [...this.#nodes.values()] };
  }
}

const numbers = (id) => id.split(".").map(Number);

function byNumber(one, other) {
  const [a, b] = [numbers(one.id), numbers(other.id)];
  const at = a.findIndex((number, i) => number !== b[i]);
  return at < 0 ? a.length - b.length : b[at] === undefined ? 1 : a[at] - b[at];
}

// [{node, level, children}]: each node right below the one that encloses it.
export function inTreeOrder(nodes) {
  const below = new Map();
  for (const node of [...nodes].sort(byNumber)) {
    if (!below.has(node.parent)) below.set(node.parent, []);
    below.get(node.parent).push(node);
  }
  const found = [];
  const walk = (parent, level) => {
    for (const node of below.get(parent) ?? []) {
      found.push({ node, level, children: below.get(node.id)?.length ?? 0 });
      walk(node.id, level + 1);
    }
  };
  walk(null, 1);
  return found;
}

export function endOf(trace, atMs) {
  return Math.max(trace.wall_ms || 0, atMs ?? 0, ...trace.nodes.map((node) => node.ended_ms), 1);
}
