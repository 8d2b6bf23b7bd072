// Drawings of elkjs or dagre of the graphs that layouts.py gives, with the same sizes and gaps as the page's.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const load = createRequire(`${process.env.NODE_PATH ?? process.cwd()}/../`);
const engine = process.argv[2];
const graphs = JSON.parse(readFileSync(0, "utf8"));
const [WIDE, HIGH] = [190, 70];

async function elk(one) {
  const ELK = load("elkjs/lib/elk.bundled.js");
  const made = new ELK();
  const child = (each) => (typeof each === "number" ? { id: `n${each}`, width: WIDE, height: HIGH } : { id: `g${each.key}`, children: each.children.map(child), layoutOptions: { "elk.padding": "[top=38,left=18,bottom=30,right=18]" } });
  const layoutOptions = { "elk.algorithm": "layered", "elk.direction": "DOWN", "elk.hierarchyHandling": "INCLUDE_CHILDREN", "elk.layered.spacing.nodeNodeBetweenLayers": "46", "elk.spacing.nodeNode": "26", "elk.edgeRouting": "ORTHOGONAL", "elk.json.edgeCoords": "ROOT", "elk.json.shapeCoords": "ROOT" };
  const found = await made.layout({ id: "root", layoutOptions, children: one.tree.children.map(child), edges: one.edges.map(([a, b], at) => ({ id: `e${at}`, sources: [`n${a}`], targets: [`n${b}`] })) });
  const nodes = [];
  const visit = (each) => {
    if (each.id[0] === "n") nodes[Number(each.id.slice(1))] = [each.x, each.y];
    for (const inner of each.children ?? []) visit(inner);
  };
  visit(found);
  const ways = [];
  for (const edge of found.edges) ways[Number(edge.id.slice(1))] = edge.sections.flatMap((part) => [part.startPoint, ...(part.bendPoints ?? []), part.endPoint].map((at) => [at.x, at.y]));
  return { width: found.width, height: found.height, nodes, ways };
}

function dagre(one) {
  const { graphlib, layout } = load("@dagrejs/dagre");
  const made = new graphlib.Graph({ compound: true, multigraph: true });
  made.setGraph({ rankdir: "TB", ranksep: 46, nodesep: 26, marginx: 16, marginy: 16 });
  made.setDefaultEdgeLabel(() => ({}));
  const visit = (group, parent) => {
    for (const each of group.children) {
      const id = typeof each === "number" ? `n${each}` : `g${each.key}`;
      if (typeof each === "object" && !each.children.length) continue;
      made.setNode(id, typeof each === "number" ? { width: WIDE, height: HIGH } : {});
      if (parent) made.setParent(id, parent);
      if (typeof each === "object") visit(each, id);
    }
  };
  visit(one.tree, null);
  one.edges.forEach(([a, b], at) => made.setEdge(`n${a}`, `n${b}`, {}, `e${at}`));
  layout(made);
  const nodes = [];
  for (const id of made.nodes()) if (id[0] === "n") nodes[Number(id.slice(1))] = [made.node(id).x - WIDE / 2, made.node(id).y - HIGH / 2];
  const ways = [];
  for (const edge of made.edges()) ways[Number(edge.name.slice(1))] = made.edge(edge).points.map((at) => [at.x, at.y]);
  const { width, height } = made.graph();
  return { width, height, nodes, ways };
}

const draw = engine === "elkjs" ? elk : dagre;
await draw(graphs[0]); // compiled
const begun = process.cpuUsage();
const pictures = [];
for (const one of graphs) pictures.push(await draw(one));
const spent = process.cpuUsage(begun);
process.stdout.write(JSON.stringify({ pictures, seconds: (spent.user + spent.system) / 1e6 }));
