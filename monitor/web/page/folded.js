// Samples of stacks as a tree of frames. Pure: tests compare it with sums of samples.

/**
 * A frame of the tree: itself, and what it called, the longest first.
 * @typedef {{key: string, name: string, file: string, line: number, kind: string, milliseconds: number, children: FrameNode[]}} FrameNode
 */

/** Cells narrower than this share of the drawing are left out. */
export const LEAST = 0.0012;

/**
 * The tree of some processes' samples: operators below the root, and functions below them.
 * @param {Samples[]} processes
 * @param {boolean} waiting whether what waits for work counts
 * @returns {FrameNode}
 */
export function tree(processes, waiting) {
  const root = made("", "all", "", 0, "all");
  /** @type {Map<FrameNode, Map<string, FrameNode>>} */
  const inside = new Map();
  /** @type {(node: FrameNode, key: string, make: () => FrameNode) => FrameNode} */
  const child = (node, key, make) => {
    const known = inside.get(node) ?? new Map();
    inside.set(node, known);
    const found = known.get(key) ?? make();
    if (!known.has(key)) {
      known.set(key, found);
      node.children.push(found);
    }
    return found;
  };
  for (const { frames, stacks } of processes) {
    for (const { kind, root: name, frames: numbers, milliseconds } of stacks) {
      if (kind === "waiting" && !waiting) continue;
      root.milliseconds += milliseconds;
      let at = child(root, `${kind} ${name}`, () => made(`${kind} ${name}`, name, "", 0, kind));
      at.milliseconds += milliseconds;
      for (const number of numbers) {
        const frame = frames[number];
        if (!frame) break;
        const key = `${frame.name} ${frame.file}:${frame.line}`;
        at = child(at, key, () => made(key, frame.name, frame.file, frame.line, "function"));
        at.milliseconds += milliseconds;
      }
    }
  }
  const sort = (/** @type {FrameNode} */ node) => {
    node.children.sort((a, b) => b.milliseconds - a.milliseconds || (a.key < b.key ? -1 : 1));
    node.children.forEach(sort);
  };
  sort(root);
  return root;
}

/** @returns {FrameNode} */
function made(key, name, file, line, kind) {
  return { key, name, file, line, kind, milliseconds: 0, children: [] };
}

/**
 * The frame at a path of keys, or the last of it that there is; with the path that leads there.
 * @param {FrameNode} root
 * @param {string[]} path
 */
export function at_path(root, path) {
  const found = [root];
  for (const key of path) {
    const next = found[found.length - 1].children.find((each) => each.key === key);
    if (!next) break;
    found.push(next);
  }
  return found;
}

/**
 * Cells of a drawing of what is below a frame: its place from 0 to 1, its row, and its path from the root.
 * @param {FrameNode[]} lineage from the root to the frame that fills the width
 * @returns {{node: FrameNode, path: string[], left: number, wide: number, row: number}[]}
 */
export function cells(lineage) {
  /** @type {{node: FrameNode, path: string[], left: number, wide: number, row: number}[]} */
  const found = [];
  /** @type {string[]} */
  let path = [];
  lineage.forEach((node, row) => {
    path = row ? [...path, node.key] : [];
    found.push({ node, path, left: 0, wide: 1, row });
  });
  const top = lineage[lineage.length - 1];
  const add = (/** @type {FrameNode} */ node, /** @type {string[]} */ above, /** @type {number} */ left, /** @type {number} */ row) => {
    for (const each of node.children) {
      const wide = each.milliseconds / (top.milliseconds || 1);
      if (wide >= LEAST) {
        found.push({ node: each, path: [...above, each.key], left, wide, row });
        add(each, [...above, each.key], left, row + 1);
      }
      left += wide;
    }
  };
  add(top, path, 0, lineage.length);
  return found;
}

/**
 * Milliseconds in frames whose name or file has a text in it; time inside of such a frame counts once.
 * @param {FrameNode} node
 * @param {string} text in small letters
 * @returns {number}
 */
export function matching(node, text) {
  return matches(node, text) ? node.milliseconds : node.children.reduce((sum, each) => sum + matching(each, text), 0);
}

/**
 * @param {FrameNode} node
 * @param {string} text
 */
export function matches(node, text) {
  return node.kind !== "all" && `${node.name} ${node.file}`.toLowerCase().includes(text);
}
