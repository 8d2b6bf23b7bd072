// Shapes of the interface's answers (docs/page.md), for the type check of page/*.js. Nothing of this is served.

/** A bound or a time: [3], [3, 2]; [-1] is everything; -2 stands between the steps of a bound of several epochs. */
type Bound = number[];

interface Operator {
  name: string;
  kind: string;
  site: string;
  region: string | null;
  policy: string;
  scope: string[];
  role: string;
  depth: number;
  chain: boolean;
  history: boolean;
  group: number;
  /** The operators of a fused chain, in order; none of a single one. */
  members: string[];
}

interface Cause {
  name: string;
  grade: string;
  reason: string;
  mend: string;
}

interface Promised {
  output: string;
  one: string;
  any: string;
  causes: Cause[];
}

interface Group {
  key: string;
  children: (number | Group)[];
}

/** GET api/job */
interface Job {
  name: string;
  title: string;
  workers: number;
  policies: string[];
  regions: { name: string; policy: string }[];
  groups: { every_epochs: number | null; every_seconds: number | null }[];
  operators: Operator[];
  edges: { source: number; target: number; spread: boolean; logged: boolean; feedback: boolean }[];
  promises: Promised[];
  tree: Group;
  bars: string[];
  several: boolean;
  /** Orders that this page takes: none without a token. */
  acts: string[];
  plan: string;
  history: boolean;
}

interface ListedJob {
  key: string;
  name: string;
  store: string;
  workers: number | null;
  live: boolean;
  verdict: Verdict | null;
  error: string;
}

interface PictureNode {
  x: number;
  y: number;
  w: number;
  h: number;
  operator: number | null;
  key: string;
  name: string;
  kind: string;
  role: string;
  small: boolean;
  count: number;
  policy: string;
  region: string | null;
  chain: boolean;
}

interface PictureBox {
  key: string;
  label: string;
  kind: string;
  depth: number;
  x: number;
  y: number;
  w: number;
  h: number;
}

interface PictureEdge {
  source: number;
  target: number;
  back: boolean;
  path: string;
  count: number;
  edges: number[];
  logged: boolean;
  spread: boolean;
}

/** GET api/graph */
interface Picture {
  across: boolean;
  width: number;
  height: number;
  nodes: PictureNode[];
  boxes: PictureBox[];
  edges: PictureEdge[];
  /** The node of each operator. */
  of: number[];
}

/** GET api/verdict */
interface Verdict {
  state: string;
  text: string;
  since: number;
  processor: number;
  worker: number;
  /** The operator concerned, one of several in a fused chain. */
  name: string;
  trace: string;
  alarm: boolean;
  over: boolean;
  /** Of api/verdict only. */
  exposure?: Danger[];
  mates?: Mate[];
}

/** An event of the timeline; what else it says depends on its kind. */
interface Happening {
  n: number;
  kind: string;
  at: number;
  routine: boolean;
  [more: string]: any;
}

/** The job in a few numbers; null: unknown. */
interface Totals {
  newest: number | null;
  slowest: number | null;
  read: number | null;
  written: number | null;
  rate: number | null;
  open: number | null;
  low: number;
  p50: number | null;
  p99: number | null;
  state: number | null;
  logged: number | null;
  kept: number | null;
  covered: number | null;
  age: number | null;
  exposed: number | null;
}

/** The cost of the death of a worker, or of the monitor (-1); null: unknown. */
interface Danger {
  who: number;
  records: number | null;
  redo: number | null;
  restore: number | null;
  back: number | null;
  seconds: number | null;
}

interface Point extends Totals {
  at: number;
}

/** What a row says, in the order of `FIELDS` in view.py. */
type Row = [number, number, number, number, number | null, number | null, number | null, number | null, number | null, number | null, number | null, number | null, number | null, number | null, string];

/** Presence, incarnation, failures, newest epoch, records a second, busy, seconds since it was heard. */
type WorkerRow = [string, number, number, number | null, number | null, number | null, number | null];

/** A message of api/events. */
interface Message {
  at: number;
  live: boolean;
  phase: string;
  verdict: Verdict;
  generation: number;
  totals?: Totals;
  rows: { [node: number]: Row };
  workers?: WorkerRow[];
  exposure?: Danger[];
  events?: Happening[];
  lost?: boolean;
}

/** POST api/whatif */
interface Supposed {
  workers: { worker: number; keeps: boolean; to: Bound | null; failed: boolean }[];
  processors: { operator: number; worker: number; to: Bound | null; keeps: boolean }[];
  resent: { edge: number; from: number; to: number; messages: number; bytes: number }[];
  redone: { records: number; seconds: number; epochs: number } | null;
  /** Take-overs of failed workers by their mates. */
  mates?: { worker: number; pid: number; epoch: number | null; left: number; seconds: number | null; without: number | null; measured: boolean; text: string }[];
  /** Limits of the answer, in words. */
  note?: string;
}

/** A mate of a worker, of api/processes and api/verdict. */
interface Mate {
  worker: number;
  state: string;
  pid: number;
  memory: number;
  epoch: number | null;
  behind: number;
  left: number;
  begun: number;
  seconds: number | null;
}

/** Exposure of a worker, by the model. */
interface ModelledCost {
  typical: { records: number; seconds: number };
  worst: { records: number; seconds: number };
}

/** Groups and logs of a layout. */
interface PlanInBrief {
  groups: { operators: string[]; saved: boolean; epochs: number | null; seconds: number | null; eager: boolean }[];
  logs: [string, string][];
}

/** POST api/policies; null where rates are not known yet. */
interface OtherPolicy {
  policies: { region: string; policy: string }[];
  before: PlanInBrief;
  after: PlanInBrief;
  promises: { output: string; before: { one: string; any: string }; after: { one: string; any: string } }[];
  workers: { worker: number; now: { records: number | null; seconds: number | null } | null; before: ModelledCost; after: ModelledCost }[] | null;
  bytes: { measured: number; before: number; after: number } | null;
  cpu: { measured: number; before: number; after: number } | null;
  unknown: string[];
}

/** GET api/history; times in milliseconds since 1970, but for `at` of a mark, in seconds. */
interface Extent {
  first: number | null;
  last: number | null;
  marks: { kind: string; at: number; [more: string]: any }[];
  safe: number[] | null;
  problems: string[];
}

/** GET api/moment: as a message of api/events, with all rows; times in seconds. */
interface Moment extends Message {
  asked: number;
  age: number;
  options_age: number | null;
  full: boolean;
  running: boolean;
  unknown: string[];
  holds: { operator: number; name: string }[];
  plan: string;
}

interface Side {
  asked: number;
  at: number;
  age: number;
  verdict: Verdict;
  totals: Totals;
  workers: WorkerRow[];
  unknown: string[];
}

/** GET api/compare */
interface Comparison {
  fields: string[];
  moments: [Side, Side];
  operators: [(number | null)[], (number | null)[]][];
}

/** GET api/epoch/N; times in seconds. */
interface Course {
  epoch: number;
  at: number;
  read: number | null;
  complete: number | null;
  safe: number | null;
  held: { operator: number; name: string; seconds: number }[];
}

/** The account of a rollback, in the event `restored` (monitor/explain/rollback.py), with its end and the event `caught_up`. */
interface Rollback {
  generation: number;
  failed: number[];
  since: number;
  causes: { worker: number; reason: string; words: string; after: number; output?: string }[];
  rounds: number;
  phases: { drain: number; decide: number; restore: number };
  drained: [number, number][];
  joined: [number, number][];
  restored: [number, number][];
  /** Take-overs by mates: worker, operators from memory, pieces read; none in older jobs. */
  mates?: [number, number, number][];
  expected: (Danger & { places: { to: Bound | null; workers: number[]; operators: [number, number][] }[] }) | null;
  places: { from: Bound; to: Bound | null; workers: number[]; operators: [number, number][] }[];
  resent: { edge: number; from: number; to: number; messages: number; bytes: number }[];
  redone: { operator: number; worker: number; records: number; epochs: number; seconds: number }[];
  left_off: number;
  ended: number;
  caught: number | null;
}

interface Placed {
  operator: number;
  worker: number;
  from: Bound;
  to: Bound | null;
}

/** What a lane of the space-time picture has; null is unknown. */
interface LaneCase {
  depth: number;
  progress: Bound | null;
  low: Bound;
  restored?: Bound;
  frontier?: Bound[];
  kept?: Bound[];
  gone?: Bound[];
  cut?: Bound;
}

/** A row: node (-1: the head of an open group), key, label, kind, groups around it, and the case of each lane. */
type TimesRow = [number, string, string, string, number, number[]];

/** GET api/spacetime */
interface SpaceTimes {
  at: number | null;
  newest: number | null;
  lanes: [number, number][];
  rows: TimesRow[];
  cases: LaneCase[];
}

/** A member of a fused chain: `spent` microseconds, `share` of the chain's time; null: not known yet. */
interface MemberRow {
  name: string;
  taken: number;
  spent: number;
  share: number;
  rate: number | null;
  busy: number | null;
  skew: number | null;
  /** Microseconds spent by each worker. */
  on: number[];
}

/** A cut of the timeline: its events, and seconds until it was durable and in W; null: not yet. */
interface CutShown {
  key: string;
  event: Happening;
  at: number;
  workers: Happening[];
  durable: number | null;
  safe: number | null;
}

/** A line of a function in a stack. */
interface LineOf {
  name: string;
  file: string;
  line: number;
}

/** POST api/stacks/PLACE: stacks of one process, innermost lines first. */
interface StackOf {
  place: string;
  pid: number;
  threads: { thread: string; lines: LineOf[] }[];
  operator: string;
  doing: string;
  note: string;
}

/** GET api/samples: time by stack of one process in the last minute, functions outermost first. */
interface Samples {
  place: string;
  pid: number;
  seconds: number;
  frames: LineOf[];
  stacks: { kind: string; root: string; frames: number[]; milliseconds: number }[];
}

/** GET api/logs/PLACE: a line that a process wrote; stream o, e or s. */
interface Line {
  n: number;
  at: number;
  pid: number;
  stream: string;
  text: string;
}

/** GET api/errors: equal errors of the job, once. */
interface JobError {
  kind: string;
  text: string;
  trace: string;
  operator: string;
  site: string;
  line: string;
  workers: number[];
  count: number;
  first: number;
  last: number;
}
