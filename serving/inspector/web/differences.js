// What differs between two runs: their plans word by word, and their nodes.

// Pairs nodes that ask the same, then nodes of the same number and kind. Gives for each side: id → {mark, other}.
export function compareNodes(left, right) {
  const found = [new Map(), new Map()];
  const pair = (one, other) => {
    const mark = one.answers.join("\n") === other.answers.join("\n") && asked(one) === asked(other) ? "" : "differs";
    found[0].set(one.id, { mark, other: other.id });
    found[1].set(other.id, { mark, other: one.id });
  };
  for (const key of [(node) => `${node.kind} ${asked(node)}`, (node) => `${node.kind} ${node.id}`]) {
    for (const one of left.nodes.filter(({ id }) => !found[0].has(id))) {
      const other = right.nodes.find((node) => !found[1].has(node.id) && key(node) === key(one));
      if (other) pair(one, other);
    }
  }
  [left, right].forEach(({ nodes }, side) => {
    for (const { id } of nodes) if (!found[side].has(id)) found[side].set(id, { mark: "alone" });
  });
  return found;
}

const asked = (node) => node.asked || node.question;

// [[words, differs], …] for each side: the words outside the longest common sequence differ.
export function compareWords(left, right) {
  const [a, b] = [left.split(/(?<=\s)/), right.split(/(?<=\s)/)];
  const length = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      length[i][j] = a[i].trim() === b[j].trim() ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  const sides = [[], []];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i].trim() === b[j].trim()) {
      sides[0].push([a[i++], false]);
      sides[1].push([b[j++], false]);
    } else if (j === b.length || (i < a.length && length[i + 1][j] >= length[i][j + 1])) sides[0].push([a[i++], true]);
    else sides[1].push([b[j++], true]);
  }
  return sides;
}

// One sentence about both.
export function summary(left, right, [marks]) {
  const counted = [...marks.values()];
  const same = counted.filter(({ mark }) => mark === "").length;
  const others = left.nodes.length + right.nodes.length - 2 * same;
  const answers = left.answer === right.answer ? "The answers are equal." : "The answers differ.";
  return `${answers} ${same} ${same === 1 ? "step is" : "steps are"} the same on both sides, ${others} are not.`;
}
