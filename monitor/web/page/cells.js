// Which cells of the space-time picture a frontier holds. Pure: tests compare it with sets of times, one by one.

/**
 * A cell: the epochs from `epoch` on, `span` of them; or one iteration `inner` of one epoch, with all later ones if `rest`.
 * @typedef {{epoch: number, span: number, inner: number | null, rest: boolean}} Cell
 */

/** Number of sub-columns of an epoch that is unfolded. */
export const ITERATIONS = 32;

const SPANS = [1, 2, 5];

/**
 * Share of a cell's times that a bound holds: 1 for all, 0 for none, and between where it holds some.
 * Of several epochs it is the share of whole ones; of an epoch, or an iteration, that is held in part, a half.
 * @param {Bound} bound
 * @param {Cell} cell
 */
export function held(bound, cell) {
  if (bound[0] === -1) return 1;
  const mark = bound.indexOf(-2);
  const depth = mark < 0 ? bound.length : mark;
  const step = (/** @type {number} */ epoch) => {
    const at = (epoch - bound[0]) * depth;
    return at >= 0 && at + depth <= bound.length ? bound.slice(at + 1, at + depth) : [];
  };
  if (cell.inner !== null) {
    if (cell.epoch < bound[0]) return 1;
    const [reached = 0, ...more] = step(cell.epoch);
    if (reached === -1) return 1;
    if (reached > cell.inner) return cell.rest ? 0.5 : 1;
    return reached === cell.inner && more.some(Boolean) ? 0.5 : 0;
  }
  const end = cell.epoch + cell.span;
  let whole = Math.max(cell.epoch, Math.min(bound[0], end));
  while (whole < end && step(whole)[0] === -1) whole += 1;
  return (whole - cell.epoch + (whole < end && step(whole).some(Boolean) ? 0.5 : 0)) / cell.span;
}

/**
 * The same, of the times that cannot come any more where these are the minimal ones that can.
 * A time can come if it is at least one of them, in each coordinate.
 * @param {Bound[]} frontier
 * @param {Cell} cell
 */
export function passed(frontier, cell) {
  let share = 1;
  for (const [epoch, inner = 0, ...more] of frontier) {
    if (epoch === -1 || inner === -1 || epoch >= cell.epoch + cell.span) continue;
    const part = more.some(Boolean) ? 0.5 : 0;
    if (cell.inner === null) share = Math.min(share, (Math.max(0, epoch - cell.epoch) + (inner || part ? 0.5 : 0)) / cell.span);
    else if (inner <= cell.inner) share = Math.min(share, part);
    else if (cell.rest) share = Math.min(share, 0.5);
  }
  return share;
}

/**
 * What a cell says of a lane's progress: by its frontier, if all of it is known.
 * @param {LaneCase} lane
 * @param {Cell} cell
 */
export function complete(lane, cell) {
  if (lane.progress === null) return 0;
  return lane.frontier ? Math.max(held(lane.progress, cell), passed(lane.frontier, cell)) : held(lane.progress, cell);
}

/**
 * Columns: `count` of them from epoch `from` on, each of `span` epochs. Epoch `unfold` has a column for each iteration
 * from `first` on in place of one.
 * @param {number} from
 * @param {number} count
 * @param {number} span
 * @param {number | null} unfold
 * @param {number} first
 * @returns {Cell[]}
 */
export function columns(from, count, span, unfold = null, first = 0) {
  /** @type {Cell[]} */
  const found = [];
  for (let epoch = from; found.length < count; epoch += span) {
    if (unfold === null || span > 1 || epoch !== unfold) found.push({ epoch, span, inner: null, rest: false });
    else for (let at = 0; at < ITERATIONS; at += 1) found.push({ epoch, span: 1, inner: first + at, rest: at === ITERATIONS - 1 });
  }
  return found;
}

/**
 * The window that shows all of these epochs in at most `count` columns, with one before the first and two behind the last.
 * @param {number[]} epochs
 * @param {number} count
 */
export function automatic(epochs, count) {
  const known = epochs.filter((epoch) => epoch >= 0);
  const least = known.length ? Math.min(...known) : 0;
  const most = known.length ? Math.max(...known) : 0;
  for (let ten = 1; ; ten *= 10) {
    for (const step of SPANS) {
      const span = step * ten;
      const from = Math.max(0, Math.floor(least / span) - 1) * span;
      if ((Math.floor(most / span) + 2) * span - from <= count * span) return { from, span };
    }
  }
}

/**
 * Runs of cells with equal shares, as [first, behind the last, share]; none are left out but those of nothing.
 * @param {number[]} shares
 */
export function runs(shares) {
  /** @type {[number, number, number][]} */
  const found = [];
  shares.forEach((share, at) => {
    const last = found[found.length - 1];
    if (last && last[1] === at && last[2] === share && (share === 1 || share === 0)) last[1] = at + 1;
    else found.push([at, at + 1, share]);
  });
  return found.filter(([, , share]) => share > 0);
}

/**
 * The place of a bound among columns, from 0 to their number: how far it holds all before.
 * @param {number[]} shares
 */
export function edge(shares) {
  const at = shares.findIndex((share) => share < 1);
  return at < 0 ? shares.length : at + shares[at];
}

/**
 * The cell of a checkpoint: the first that it does not hold whole; null where that is outside of the columns.
 * @param {Bound} bound
 * @param {Cell[]} cells
 */
export function place(bound, cells) {
  if (bound[0] === -1) return null;
  const at = edge(cells.map((cell) => held(bound, cell)));
  const first = cells[0];
  const before = bound[0] < first.epoch || (bound[0] === first.epoch && (bound[1] ?? 0) !== -1 && (bound[1] ?? 0) < (first.inner ?? 0));
  return at >= cells.length || (at === 0 && before) ? null : at;
}
