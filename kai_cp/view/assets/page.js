"use strict";
/* The page: one document (view/1), six questions. Every name from the cluster goes through textContent. */

const FREE = -1, OTHER = -2, ROWS = 200;
const VIEWS = [["queues", "Queues"], ["pending", "Pending"], ["cluster", "Cluster"], ["time", "Time"], ["cycles", "Cycles"], ["evictions", "Evictions"]];
const PALETTE = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#e07b39", "#7a6bd1", "#2aa198", "#999933"];
const GREY = "#8a93a3";
const $ = (id) => document.getElementById(id);
const narrow = matchMedia("(max-width: 640px)");
let world = null;

/* ---- small means ---- */

function h(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) made.append(child);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";
function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value !== null && value !== undefined) made.setAttribute(name, value);
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

const amount = (value) => value < 0 ? "∞" : (Math.round(value * 100) / 100).toLocaleString("en");
const plural = (count, word) => `${count.toLocaleString("en")} ${noun(count, word)}`;
const noun = (count, word) => `${word}${count === 1 ? "" : "s"}`;
const verb = (count, word) => `${word}${count === 1 ? "s" : ""}`;
function age(seconds) {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "m"]]) if (seconds >= size) return `${Math.floor(seconds / size)}${unit}`;
  return `${Math.floor(seconds)}s`;
}

/* ---- the address is the state: #view?key=value ---- */

function state() {
  const [view, query] = location.hash.slice(1).split("?");
  return { view: VIEWS.some(([name]) => name === view) ? view : "queues", get: new URLSearchParams(query || "") };
}
function link(view, changes, keep) {
  const query = new URLSearchParams(keep ? state().get : {});
  for (const [key, value] of Object.entries(changes || {})) value === "" || value === null ? query.delete(key) : query.set(key, value);
  const text = query.toString();
  return `#${view}${text ? `?${text}` : ""}`;
}
function go(changes) { history.replaceState(null, "", link(state().view, changes, true)); render(); }
const groupLink = (number) => number < 0 ? "another scheduler's" :
  h("a", { href: link("cluster", { group: world.groups[number].name }) }, world.groups[number].name);

/* ---- tables ---- */

function table(columns, rows, options) {
  const { get } = state();
  const words = (get.get("q") || "").toLowerCase().split(/\s+/).filter(Boolean);
  let shown = rows.filter((row) => words.every((word) => row.text.toLowerCase().includes(word)));
  const [sort, down] = [get.get("sort"), get.get("down") === "1"];
  const at = columns.findIndex((column) => column.title === sort);
  if (at >= 0) {
    const order = (a, b) => typeof a === "number" ? a - b : String(a).localeCompare(String(b));
    shown = [...shown].sort((a, b) => order(a.keys[at], b.keys[at]) * (down ? -1 : 1));
  }
  if (!shown.length) return h("p", { class: "empty" }, words.length ? "Nothing matches the search." : options.empty);
  const body = h("tbody");
  const box = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.label });
  const more = h("button", { type: "button" });
  let next = 0;
  const add = (count) => {
    for (const row of shown.slice(next, next + count)) {
      body.append(h("tr", {}, row.cells.map((cell, i) => h("td", { class: columns[i].class || "", "data-title": columns[i].title, hidden: narrow.matches && (cell === "" || columns[i].title === "") }, cell))));
    }
    next = Math.min(shown.length, next + count);
    more.textContent = `Show ${plural(Math.min(ROWS * 5, shown.length - next), "row")} more of ${shown.length.toLocaleString("en")}`;
    more.hidden = next >= shown.length;
  };
  more.addEventListener("click", () => add(ROWS * 5));
  const head = columns.map((column, i) => h("th", { class: column.class || "", scope: "col", "aria-sort": i === at ? (down ? "descending" : "ascending") : null },
    column.title ? h("button", { type: "button", onclick: () => go({ sort: column.title, down: i === at && !down ? "1" : "" }) }, column.title, i === at ? (down ? " ▾" : " ▴") : "") : ""));
  add(ROWS);
  box.append(h("table", {}, h("thead", {}, h("tr", {}, head)), body));
  return h("div", {}, box, h("p", {}, more));
}
const row = (text, keys, cells) => ({ text, keys, cells });

const tile = (value, words, tone) => h("div", { class: "tile" }, h("b", { class: tone || "" }, value), h("span", {}, words));

/* ---- Queues ---- */

function bar(used, fair, limit) {
  const top = Math.max(used, fair < 0 ? 0 : fair, limit < 0 ? 0 : limit, 1);
  const fill = h("i", { class: fair >= 0 && used > fair ? "over" : "" });
  fill.style.width = `${100 * used / top}%`;
  const told = `${amount(used)} used, fair share ${amount(fair)}`;
  const made = h("div", { class: "bar", role: "img", "aria-label": told, title: told }, fill);
  if (fair >= 0) {
    const mark = h("u");
    mark.style.left = `calc(${100 * fair / top}% - 1px)`;
    made.append(mark);
  }
  return made;
}

function queues() {
  const resource = state().get.get("of") || "gpu";
  const at = { cpu: 0, memory: 1, gpu: 2 }[resource] ?? 2;
  const scale = [1000, 2 ** 30, 1][at];
  const unit = ["CPU cores", "GiB of memory", "GPUs"][at];
  const value = (numbers) => numbers[at] < 0 ? -1 : numbers[at] / scale;
  const roots = world.queues.filter((queue) => queue.depth === 0);
  const sum = (key) => roots.reduce((total, queue) => total + Math.max(0, value(queue[key])), 0);
  const starved = world.queues.reduce((total, queue) => total + queue.starved, 0);
  const columns = ["Queue", "Used", "| fair share", "Quota", "Fair share", "Limit", "Borrowed", "After", "Waiting", "Owed"].map((title, i) => ({
    title, class: i === 0 ? "name" : i === 2 ? "wide" : [3, 5, 6].includes(i) ? "number wide" : "number" }));
  const rows = world.queues.map((queue) => {
    const [used, quota, fair, limit] = ["used", "quota", "fair", "limit"].map((key) => value(queue[key]));
    const borrowed = quota < 0 ? 0 : Math.max(0, used - quota);
    const after = queue.after ? value(queue.after) : used;
    const name = h("div", {}, h("a", { href: link("pending", { q: queue.name }) }, queue.name), queue.title && queue.title !== queue.name ? h("div", { class: "sub" }, queue.title) : null);
    name.style.paddingLeft = `${queue.depth * 18}px`;
    return row(`${queue.name} ${queue.title}`, [queue.name, used, used, quota, fair, limit, borrowed, after, queue.waiting, queue.starved],
      [name, amount(used), bar(used, fair, limit), amount(quota), amount(fair), amount(limit), borrowed ? amount(borrowed) : "",
        after !== used ? h("b", {}, amount(after)) : amount(after), queue.waiting || "", queue.starved ? h("b", { class: "bad" }, queue.starved) : ""]);
  });
  const pick = h("select", { "aria-label": "Resource", onchange: (event) => go({ of: event.target.value }) },
    [["gpu", "GPUs"], ["cpu", "CPU cores"], ["memory", "Memory [GiB]"]].map(([key, name]) => h("option", { value: key, selected: key === resource }, name)));
  return [
    h("div", { class: "tiles" }, tile(amount(sum("used")), `${unit} used`), tile(amount(sum("fair")), `${unit}: fair shares of the top queues`),
      tile(String(world.queues.length), noun(world.queues.length, "queue")), tile(String(starved), `${noun(starved, "pod group")} owed and not served`, starved ? "bad" : "good")),
    h("div", { class: "controls" }, h("label", {}, "Show ", pick)),
    table(columns, rows, { empty: "There are no queues.", label: "Queues" }),
  ];
}

/* ---- Pending ---- */

function proof(entry) {
  if (!entry.reason) return "";
  return h("span", { class: `badge ${entry.proved ? "good" : "warn"}` }, entry.proved ? "proved" : "not proved");
}

/* What would help: from the document, or asked of the scheduler that serves the page. */
function remedies(entry, name) {
  const list = ({ fixes, note }) => h("div", { class: "sub" },
    fixes.length ? h("ol", { class: "sub" }, fixes.map((fix) => h("li", {}, fix))) : "Fixes: ", note || null);
  if (entry.fixes) return list(entry);
  if (!world.asks) return null;
  const ask = h("button", { type: "button", class: "small" }, "What would help?");
  ask.addEventListener("click", async () => {
    ask.disabled = true;
    ask.textContent = "Asking …";
    try {
      const answer = await fetch(`/view/fixes?podGroup=${encodeURIComponent(name)}`);
      if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
      Object.assign(entry, await answer.json());
      ask.replaceWith(list(entry));
    } catch (error) {
      ask.disabled = false;
      ask.textContent = `${error.message}. Ask again`;
    }
  });
  return ask;
}

function pending() {
  const columns = ["#", "Pod group", "Queue", "GPUs", "Pods", "Age", "Reason", "Proof"].map((title, i) => ({
    title, class: i === 1 ? "name" : [0, 3, 4, 5].includes(i) ? "number" : i === 6 ? "whole" : i === 2 ? "wide" : "" }));
  const rows = world.pending.map((entry) => {
    const group = world.groups[entry.group];
    return row(`${group.name} ${group.queue} ${entry.reason} ${entry.message}`, [entry.position ?? Infinity, group.name, group.queue, entry.gpus, entry.pods, entry.seconds, entry.reason, Number(entry.proved)],
      [entry.position ?? "-", [groupLink(entry.group), h("div", { class: "sub" }, `priority ${group.priority}`)], group.queue, amount(entry.gpus), `${entry.pods} of ${entry.pending}`, age(entry.seconds),
        [h("b", {}, entry.reason), h("div", { class: "sub" }, entry.message), remedies(entry, group.name)], proof(entry)]);
  });
  const reasons = new Map();
  for (const entry of world.pending) reasons.set(entry.reason || "not decided", (reasons.get(entry.reason || "not decided") || 0) + 1);
  const top = [...reasons].sort((a, b) => b[1] - a[1]).slice(0, 5);
  return [
    h("div", { class: "tiles" }, tile(String(world.pending.length), world.decided ? `${verb(world.pending.length, "stay")} pending` : verb(world.pending.length, "wait")), top.map(([reason, count]) => tile(String(count), reason))),
    table(columns, rows, { empty: "No pod group waits.", label: "Pending pod groups in fair order" }),
  ];
}

/* ---- Cluster ---- */

function colours() {
  const sizes = new Map();
  world.cells.forEach((cells) => cells.forEach((cell) => { if (cell >= 0) sizes.set(world.groups[cell].queue, (sizes.get(world.groups[cell].queue) || 0) + 1); }));
  for (const group of world.groups) if (!sizes.has(group.queue)) sizes.set(group.queue, 0);
  const order = [...sizes].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).map(([queue]) => queue);
  return new Map(order.map((queue, i) => [queue, i < PALETTE.length ? PALETTE[i] : GREY]));
}

function places() {
  const found = world.levels.flatMap((tree, t) => tree.levels.map((level, l) => ({ key: `${t}.${l}`, name: world.levels.length > 1 ? `${tree.name}: ${level}` : level, of: (n) => tree.paths[n] ? tree.paths[n].slice(0, l + 1).filter(Boolean).join(" / ") : "outside" })));
  if (world.nodes.some((node) => node.domain)) found.push({ key: "nvlink", name: "NVLink domain", of: (n) => world.nodes[n].domain || "none" });
  found.push({ key: "all", name: "all nodes", of: () => "all nodes" });
  return found;
}

function standard(options) {
  const sized = options.map((option) => ({ option, blocks: new Set(world.nodes.map((_, n) => option.of(n))).size }));
  const good = sized.filter(({ blocks }) => blocks > 1 && blocks <= Math.max(2, world.nodes.length / 2));
  return (good.length ? good[good.length - 1] : sized[sized.length - 1]).option;
}

function cluster() {
  const { get } = state();
  const options = places();
  const by = options.find((option) => option.key === get.get("by")) || standard(options);
  const time = get.get("at") || (world.decided ? "after" : "before");
  const marked = get.get("group") || "";
  const focus = world.groups.findIndex((group) => group.name === marked);
  const words = (get.get("q") || "").toLowerCase().split(/\s+/).filter(Boolean);
  const cellsOf = (n) => time === "before" ? world.cells[n] : world.cellsAfter[n] || world.cells[n];
  const owns = (cell) => Array.isArray(cell) ? cell.includes(focus) : cell === focus;
  const blocks = new Map();
  world.nodes.forEach((node, n) => {
    const name = by.of(n);
    if (!words.every((word) => `${node.name} ${name} ${node.product} ${cellsOf(n).flat().filter((c) => c >= 0).map((c) => world.groups[c].name).join(" ")}`.toLowerCase().includes(word))) return;
    if (!blocks.has(name)) blocks.set(name, []);
    blocks.get(name).push(n);
  });
  const paint = colours();
  const total = world.nodes.reduce((sum, node) => sum + node.gpus, 0);
  const count = (test) => world.nodes.reduce((sum, _, n) => sum + cellsOf(n).filter((cell) => test(cell, n)).length, 0);
  const free = count((cell, n) => cell === FREE && !world.nodes[n].closed);
  const hover = h("p", { id: "hover", role: "status" }, "Point at a GPU to see which pods hold it.");
  const drawn = { paint, cellsOf, focus, owns, hover };
  const map = h("div", { class: "map" }, [...blocks].map(([name, numbers]) => block(name, numbers, drawn)));
  const widest = Math.max(8, ...world.nodes.map((node) => node.gpus > 16 ? 8 : node.gpus));
  map.style.setProperty("--block", `${Math.max(180, Math.min(460, widest * (labelled() ? 22 : 11) + (labelled() ? 190 : 40)))}px`);
  const choose = (key, current, entries) => entries.map(([value, name]) => h("button", { type: "button", "aria-pressed": String(value === current), onclick: () => go({ [key]: value }) }, name));
  return [
    h("div", { class: "tiles" }, tile(amount(total), noun(total, "GPU")), tile(amount(total - count((c) => c === FREE)), "GPUs held"), tile(amount(free), "GPUs free"),
      tile(amount(count((c, n) => c === FREE && world.nodes[n].closed)), "GPUs on nodes that take no pods"), tile(amount(world.nodes.length), noun(world.nodes.length, "node"))),
    h("div", { class: "controls" }, world.decided ? choose("at", time, [["before", "Before"], ["after", "After"]]) : null,
      h("label", {}, "by ", h("select", { "aria-label": "Group nodes by", onchange: (event) => go({ by: event.target.value }) }, options.map((option) => h("option", { value: option.key, selected: option === by }, option.name)))),
      marked ? h("button", { type: "button", onclick: () => go({ group: "" }) }, focus < 0 ? `${marked} is not here ✕` : `Highlighted: ${marked} ✕`) : null),
    h("ul", { class: "legend" }, [...paint].slice(0, PALETTE.length).map(([queue, colour]) => swatch(colour, queue)),
      paint.size > PALETTE.length ? swatch(GREY, "other queues") : null, count((cell) => [].concat(cell)[0] === OTHER) ? swatch(GREY, "another scheduler's") : null,
      swatch("var(--free)", "free"), swatch("var(--closed)", "takes no pods"), count(Array.isArray) ? h("li", {}, "with a corner cut off: shared") : null, labelled() ? shared(ending()) : null),
    blocks.size ? map : h("p", { class: "empty" }, world.nodes.length ? "No node matches the search." : "There are no nodes."),
    hover,
    h("h2", {}, "Nodes"),
    nodeTable(cellsOf, by),
  ];
}

function swatch(colour, name) {
  const mark = h("i");
  mark.style.background = colour;
  return h("li", {}, mark, name);
}
const labelled = () => world.nodes.length <= 80;

/* The domain that all names of nodes end in, such as .compute.internal: pictures say it once. */
function ending() {
  const ends = new Set(world.nodes.map(({ name }) => name.includes(".") ? name.slice(name.indexOf(".")) : ""));
  return ends.size === 1 ? [...ends][0] : "";
}
const bare = (name, end) => end && name.endsWith(end) ? name.slice(0, -end.length) : name;
const shared = (end) => end ? h("li", {}, `nodes end in ${end}`) : null;

function nodeTable(cellsOf, by) {
  const columns = ["Node", "Place", "GPUs", "Free", "Pod groups", "State"].map((title, i) => ({ title, class: i === 0 ? "name" : [2, 3].includes(i) ? "number" : [1].includes(i) ? "wide" : "" }));
  const rows = world.nodes.map((node, n) => {
    const cells = cellsOf(n), held = [...new Set(cells.flat().filter((cell) => cell >= 0))], idle = cells.filter((cell) => cell === FREE).length;
    const names = held.map((number) => world.groups[number].name);
    return row(`${node.name} ${by.of(n)} ${node.product} ${names.join(" ")} ${node.closed}`, [node.name, by.of(n), node.gpus, idle, held.length, node.closed],
      [[node.name, node.product ? h("div", { class: "sub" }, node.product) : null], by.of(n), amount(node.gpus), amount(idle),
        held.slice(0, 8).flatMap((number, i) => [i ? ", " : "", groupLink(number)]).concat(held.length > 8 ? ` and ${held.length - 8} more` : []), node.closed || "ready"]);
  });
  return table(columns, rows, { empty: "There are no nodes.", label: "Nodes" });
}

/* A block is drawn when it comes into sight: 5,000 nodes cost as much as those on the screen. */
const seen = "IntersectionObserver" in window ? new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); entry.target.paintNow(); }
}, { rootMargin: "300px" }) : null;

function block(name, numbers, drawn) {
  const { cellsOf, hover } = drawn;
  const total = numbers.reduce((sum, n) => sum + world.nodes[n].gpus, 0);
  const idle = numbers.reduce((sum, n) => sum + cellsOf(n).filter((cell) => cell === FREE).length, 0);
  const canvas = h("canvas", { role: "img", "aria-label": `${name}: ${plural(numbers.length, "node")}, ${idle} of ${total} GPUs free` });
  const size = labelled() ? 18 : 8, gap = 2, wide = Math.min(8, Math.max(1, ...numbers.map((n) => cellsOf(n).length)));
  const tall = Math.max(1, ...numbers.map((n) => Math.ceil(cellsOf(n).length / wide)));
  const tile = { width: wide * (size + gap) + 6, height: tall * (size + gap) + 6, label: labelled() ? 150 : 0 };
  const across = () => labelled() ? 1 : Math.max(1, Math.floor((canvas.clientWidth || 220) / tile.width));
  canvas.style.height = `${Math.ceil(numbers.length / (labelled() ? 1 : 4)) * tile.height}px`;
  const geometry = { size, gap, wide, tile, across };
  canvas.paintNow = () => paintBlock(canvas, numbers, geometry, drawn);
  seen ? seen.observe(canvas) : requestAnimationFrame(canvas.paintNow);
  const find = (event) => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const column = labelled() ? 0 : Math.floor(x / tile.width), line = Math.floor(y / tile.height);
    const n = numbers[line * across() + column];
    if (n === undefined || column >= across()) return null;
    const inX = Math.floor((x - tile.label - column * tile.width) / (size + gap)), inY = Math.floor((y - line * tile.height) / (size + gap));
    return { n, cell: inX >= 0 && inX < wide ? cellsOf(n)[inY * wide + inX] : undefined };
  };
  canvas.addEventListener("mousemove", (event) => { const at = find(event); if (at) hover.textContent = tell(at); });
  canvas.addEventListener("click", (event) => {
    const at = find(event), cell = at && (Array.isArray(at.cell) ? at.cell[0] : at.cell);
    if (cell >= 0) go({ group: world.groups[cell].name });
  });
  return h("section", { class: "block" }, h("h3", {}, name, h("span", {}, `${idle} of ${total} free`)), canvas);
}

function tell({ n, cell }) {
  const node = world.nodes[n], where = `${node.name}${node.closed ? ` (${node.closed})` : ""}`;
  if (cell === undefined) return where;
  if (cell === FREE) return `${where}: free`;
  const owners = [].concat(cell).map((number) => number < 0 ? "a pod of another scheduler" : `${world.groups[number].name} (${world.groups[number].queue})`);
  return `${where}: ${owners.join(", ")}`;
}

/* The name, cut in the middle until the pen needs no more than so many pixels. */
function within(pen, name, pixels) {
  let most = name.length;
  while (most > 3 && pen.measureText(short(name, most)).width > pixels) most -= 1;
  return short(name, most);
}

function paintBlock(canvas, numbers, { size, gap, wide, tile, across }, { paint, cellsOf, focus, owns }) {
  const style = getComputedStyle(document.documentElement), ratio = window.devicePixelRatio || 1;
  const end = ending(), columns = across(), height = Math.ceil(numbers.length / columns) * tile.height;
  canvas.style.height = `${height}px`;
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const [free, closed, text, line] = ["--free", "--closed", "--text", "--line"].map((name) => style.getPropertyValue(name).trim());
  numbers.forEach((n, i) => {
    const left = (i % columns) * tile.width + tile.label, top = Math.floor(i / columns) * tile.height;
    if (tile.label) { pen.globalAlpha = 1; pen.fillStyle = text; pen.fillText(within(pen, bare(world.nodes[n].name, end), tile.label - 6), 0, top + size / 2 + 1); }
    cellsOf(n).forEach((cell, c) => {
      const x = left + (c % wide) * (size + gap), y = top + Math.floor(c / wide) * (size + gap);
      const first = Array.isArray(cell) ? cell[0] : cell;
      pen.globalAlpha = focus >= 0 && !owns(cell) ? 0.22 : 1;
      pen.fillStyle = cell === FREE ? (world.nodes[n].closed ? closed : free) : first < 0 ? GREY : paint.get(world.groups[first].queue);
      pen.fillRect(x, y, size, size);
      if (cell === FREE) { pen.strokeStyle = line; pen.strokeRect(x + .5, y + .5, size - 1, size - 1); }
      if (Array.isArray(cell)) { pen.fillStyle = free; pen.fillRect(x + size / 2, y, size / 2, size / 2); }
      if (focus >= 0 && owns(cell)) { pen.strokeStyle = text; pen.lineWidth = 2; pen.strokeRect(x + 1, y + 1, size - 2, size - 2); pen.lineWidth = 1; }
    });
  });
}
const short = (name, most) => name.length <= most ? name : `${name.slice(0, Math.ceil(most / 2) - 1)}…${name.slice(name.length - Math.floor(most / 2))}`;

/* ---- Time: nodes, or what they lie in, over time ---- */

const [RUNS, STARTS, RESERVED] = [0, 1, 2];
const LANES = 40, STEPS = [300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];
const clock = (seconds) => new Date(Date.parse(world.now) + seconds * 1000).toISOString();
const minute = (seconds, days) => clock(seconds).slice(days ? 5 : 11, 16).replace("T", " ");

function lanes(by, bars) {
  const found = new Map();
  world.nodes.forEach((node, n) => {
    const name = by ? by.of(n) : node.name, lane = found.get(name) || { name, gpus: 0, bars: [] };
    lane.gpus += node.gpus;
    found.set(name, lane);
  });
  for (const [n, group, gpus, begin, end, part] of bars) {
    found.get(by ? by.of(n) : world.nodes[n].name).bars.push({ group, gpus, begin, end, part });
  }
  const held = (lane) => lane.bars.some((bar) => bar.part === RESERVED);
  return [...found.values()].filter((lane) => lane.gpus).sort((a, b) => held(b) - held(a));
}

/* What is there longest lies lowest, so that what is reserved rests on what is still there at its start. */
function stacked(bars, last) {
  const until = (bar) => bar.end === null ? Infinity : bar.end;
  const order = [...bars].sort((a, b) => a.begin - b.begin || until(b) - until(a) || a.group - b.group);
  const placed = [];
  for (const bar of order) {
    const low = Math.max(0, ...placed.filter((other) => other.begin < until(bar) && until(other) > bar.begin).map((other) => other.low + other.gpus));
    placed.push({ ...bar, low, until: Math.min(until(bar), last) });
  }
  return placed;
}

/* Above a single node it is how much runs, not what: bars of one kind and end are one. */
function merged(bars) {
  const found = new Map();
  for (const bar of bars) {
    const key = bar.part === RESERVED ? `${bar.group} ${bar.begin}` : `${bar.part} ${bar.end}`, known = found.get(key);
    found.set(key, { ...bar, gpus: bar.gpus + (known ? known.gpus : 0), group: bar.part === RESERVED ? bar.group : OTHER });
  }
  return [...found.values()];
}

function spoken(bar, days) {
  const held = bar.group < 0 ? plural(amount(bar.gpus), "GPU") : `${world.groups[bar.group].name}, ${plural(amount(bar.gpus), "GPU")}`;
  const end = bar.end === null ? "end unknown" : `until ${minute(bar.end, days)}`;
  return bar.part === RESERVED ? `held for ${held} from ${minute(bar.begin, days)}, ${end}` : `${held} ${bar.part === STARTS ? "starts now" : "runs"}, ${end}`;
}

function gantt(shown, paint, single, tell) {
  const ends = shown.flatMap((lane) => lane.bars.flatMap((bar) => [bar.begin, bar.end === null ? 0 : bar.end]));
  const last = 1.1 * Math.max(3600, ...ends), days = last > 86400, wide = Math.max(320, Math.min(1400, document.documentElement.clientWidth - (narrow.matches ? 24 : 60)));
  const end = ending(), label = narrow.matches ? 96 : 170, tall = 24, head = 22, x = (seconds) => label + (wide - label - 8) * seconds / last;
  const step = STEPS.find((size) => last / size <= (wide - label) / (days ? 90 : 60)) || STEPS.at(-1);
  const drawing = svg("svg", { class: "gantt", width: wide, height: head + shown.length * tall + 4, role: "list", "aria-label": "Nodes over time (UTC)" });
  const first = (step - Date.parse(world.now) / 1000 % step) % step;
  for (let at = first; x(at) < wide - 30; at += step) {
    drawing.append(svg("line", { class: "grid", x1: x(at), x2: x(at), y1: head - 4, y2: head + shown.length * tall }),
      svg("text", { class: "tick", x: x(at), y: 14, "text-anchor": "middle" }, minute(at, days)));
  }
  shown.forEach((lane, i) => {
    const top = head + i * tall, bars = stacked(single ? lane.bars : merged(lane.bars), last);
    const most = Math.max(lane.gpus, ...bars.map((bar) => bar.low + bar.gpus)), y = (gpus) => top + tall - 3 - (tall - 5) * gpus / most;
    const words = `${lane.name}: ${bars.map((bar) => spoken(bar, days)).join("; ") || "nothing runs"}`;
    const line = svg("g", { class: "lane", role: "listitem", tabindex: i ? -1 : 0, "aria-label": words },
      svg("rect", { class: "ground", x: label, y: y(lane.gpus), width: wide - label - 8, height: y(0) - y(lane.gpus) }),
      svg("text", { x: 0, y: top + 16 }, short(bare(lane.name, end), narrow.matches ? 13 : 24)),
      bars.map((bar) => svg("rect", {
        class: ["runs", "starts", "reserved"][bar.part] + (bar.end === null ? " open" : ""), fill: bar.part === RESERVED ? paint.get(bar.group) : null,
        x: x(bar.begin), width: Math.max(1, x(bar.until) - x(bar.begin)), y: y(bar.low + bar.gpus), height: y(bar.low) - y(bar.low + bar.gpus) })));
    const say = () => { tell.textContent = words; };
    line.addEventListener("focus", say);
    line.addEventListener("mousemove", say);
    line.addEventListener("keydown", (event) => {
      const next = event.key === "ArrowDown" ? line.nextElementSibling : event.key === "ArrowUp" ? line.previousElementSibling : null;
      if (!next || !next.matches(".lane")) return;
      event.preventDefault();
      line.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
    drawing.append(line);
  });
  return drawing;
}

function time() {
  if (!world.time) return [h("p", { class: "empty" }, world.decided ? "Nothing is planned ahead: reservations are off." : "Nothing was decided yet.")];
  const { get } = state(), when = (seconds) => seconds === null ? "" : minute(seconds, Math.abs(seconds) > 43200);
  const options = [{ key: "node", name: "node", of: null }, ...places().filter((option) => option.key !== "all")];
  const by = options.find((option) => option.key === get.get("over")) || options[0], single = by.of === null;
  const words = (get.get("q") || "").toLowerCase().split(/\s+/).filter(Boolean);
  const said = (lane) => `${lane.name} ${[...new Set(lane.bars.map((bar) => bar.group))].map((group) => world.groups[group].name).join(" ")}`.toLowerCase();
  const fitting = lanes(single ? null : by, world.time.bars).filter((lane) => words.every((word) => said(lane).includes(word)));
  const most = Math.max(LANES, Number(get.get("rows")) || 0);
  const holders = [...new Set(world.time.bars.filter((bar) => bar[5] === RESERVED).map((bar) => bar[1]))];
  const next = holders.length ? Math.min(...world.time.bars.filter((bar) => bar[5] === RESERVED).map((bar) => bar[3])) : null;
  const paint = new Map(holders.map((group, i) => [group, PALETTE[i % PALETTE.length]]));
  const tell = h("p", { id: "hover", role: "status" }, "Point at a line, or move with the arrow keys, to read it.");
  const columns = ["Pod group", "State", "Start", "Promised", "GPUs", "Nodes", "Idle GPU-hours"].map((title, i) => ({ title, class: i === 0 ? "name" : i > 3 && i !== 5 ? "number" : "" }));
  const rows = world.time.starts.map((entry) => {
    const state = entry.cause ? `${entry.state} (${entry.cause})` : entry.state;
    return row(`${world.groups[entry.group].name} ${state} ${entry.nodes.join(" ")} ${entry.message}`, [world.groups[entry.group].name, state, entry.start, entry.promised, entry.gpus, entry.nodes.length, entry.idleGpuHours],
      [[groupLink(entry.group), h("div", { class: "sub" }, entry.message)], state, when(entry.start), when(entry.promised), amount(entry.gpus),
        [entry.nodes.slice(0, 4).join(", "), entry.nodes.length > 4 ? ` and ${entry.nodes.length - 4} more` : ""], amount(entry.idleGpuHours)]);
  });
  return [
    h("div", { class: "tiles" }, tile(String(holders.length), holders.length === 1 ? "pod group holds places" : "pod groups hold places"), tile(next === null ? "–" : when(next), "first of their starts (UTC)")),
    h("div", { class: "controls" }, h("label", {}, "Lines: ", h("select", { "aria-label": "Lines of the picture", onchange: (event) => go({ over: event.target.value }) },
      options.map((option) => h("option", { value: option.key, selected: option === by }, option.name))))),
    h("ul", { class: "legend" }, swatch("var(--closed)", "runs"), swatch("var(--soft)", "starts now"), swatch("var(--line)", "end unknown"), holders.map((group) => swatch(paint.get(group), `held for ${world.groups[group].name}`)), single ? shared(ending()) : null),
    fitting.length ? h("div", { class: "scroll pad" }, gantt(fitting.slice(0, most), paint, single, tell)) : h("p", { class: "empty" }, "No line matches the search."),
    fitting.length > most ? h("p", {}, h("button", { type: "button", onclick: () => go({ rows: String(most + 4 * LANES) }) }, `Show more of ${plural(fitting.length, "line")}`)) : null,
    tell,
    h("h2", {}, "Starts in the future (UTC)"),
    table(columns, rows, { empty: "There are none.", label: "Starts in the future" }),
  ];
}

/* ---- Cycles ---- */

function cycles() {
  const starts = world.starts.map((entry) => {
    const group = world.groups[entry.group];
    const when = entry.kind === "Bind" ? "now" : "when free";
    return row(`${group.name} ${group.queue} ${entry.action} ${when} ${entry.nodes.join(" ")}`, [group.name, group.queue, entry.pods, when, entry.action, entry.nodes.length],
      [groupLink(entry.group), group.queue, amount(entry.pods), when, entry.action, [entry.nodes.slice(0, 4).join(", "), entry.nodes.length > 4 ? ` and ${entry.nodes.length - 4} more` : ""]]);
  });
  const stages = world.stages.map((stage) => row(stage.name, [stage.name, stage.status, stage.objective, stage.bound, stage.gap],
    [stage.name, h("span", { class: `badge ${stage.status === "OPTIMAL" ? "good" : "warn"}` }, stage.status), amount(stage.objective), amount(stage.bound), `${(100 * stage.gap).toFixed(1)} %`]));
  const named = (titles, numbers, wide) => titles.map((title, i) => ({ title, class: [i === 0 ? "name" : "", numbers.includes(i) ? "number" : "", (wide || []).includes(i) ? "wide" : ""].join(" ") }));
  const history = (world.cycles || []).slice().reverse().map((cycle) => {
    const seconds = Object.values(cycle.seconds).reduce((sum, value) => sum + value, 0), gap = Math.max(0, ...cycle.stages.map((stage) => stage.gap));
    return row(`${cycle.cycle} ${cycle.problem || ""}`, [cycle.cycle, cycle.started, seconds, cycle.decisions.Bind || 0, cycle.decisions.Nominate || 0, cycle.decisions.Evict || 0, gap],
      [h("a", { href: `/debug/cycles/${encodeURIComponent(cycle.cycle)}` }, String(cycle.cycle)), [cycle.started, cycle.problem ? h("div", { class: "sub bad" }, cycle.problem) : null], `${seconds.toFixed(2)} s`,
        amount(cycle.decisions.Bind || 0), amount(cycle.decisions.Nominate || 0), amount(cycle.decisions.Evict || 0), `${(100 * gap).toFixed(1)} %`]);
  });
  return [
    h("h2", {}, "What starts"),
    table(named(["Pod group", "Queue", "Pods", "When", "By", "Nodes"], [2], [1, 4]), starts, { empty: world.decided ? "Nothing starts." : "Nothing was decided yet.", label: "What starts" }),
    h("h2", {}, "Stages of the last decision"),
    table(named(["Stage", "Status", "Objective", "Bound", "Gap"], [2, 3, 4]), stages, { empty: "There are none.", label: "Stages" }),
    history.length ? h("h2", {}, "Last cycles") : null,
    history.length ? table(named(["Cycle", "Started", "Time", "Bound", "Nominated", "Evicted", "Largest gap"], [2, 3, 4, 5, 6], [1]), history, { empty: "", label: "Cycles" }) : null,
    world.skipped.length ? h("h2", {}, "Skipped objects") : null,
    world.skipped.length ? table(named(["Object", "Reason"], []), world.skipped.map((entry) => row(`${entry.item} ${entry.reason}`, [entry.item, entry.reason], [entry.item, entry.reason])), { empty: "", label: "Skipped objects" }) : null,
  ];
}

/* ---- Evictions ---- */

function evictions() {
  const lost = world.evictions.filter((entry) => !entry.to);
  const columns = ["Pod", "Pod group", "Queue", "GPUs", "From", "And then", "By", "For"].map((title, i) => ({ title, class: i === 0 ? "name" : i === 3 ? "number" : [1, 2, 6].includes(i) ? "wide" : "" }));
  const rows = world.evictions.map((entry) => {
    const group = entry.group < 0 ? { name: "", queue: "" } : world.groups[entry.group];
    const names = entry.for.map((number) => world.groups[number].name);
    return row(`${entry.pod} ${group.name} ${group.queue} ${entry.from} ${entry.to} ${names.join(" ")} ${entry.action}`, [entry.pod, group.name, group.queue, entry.gpus, entry.from, entry.to, entry.action, names.join()],
      [[entry.pod, names.length ? null : h("div", { class: "sub" }, entry.message)], groupLink(entry.group), group.queue, amount(entry.gpus), entry.from,
        entry.to ? entry.to === entry.from ? "restarts in place" : entry.to : h("span", { class: "warn" }, "back to pending"), entry.action, entry.for.flatMap((number, i) => [i ? ", " : "", groupLink(number)])]);
  });
  return [
    h("div", { class: "tiles" }, tile(String(world.evictions.length), `${noun(world.evictions.length, "pod")} evicted`), tile(String(world.evictions.length - lost.length), "of them moved"),
      tile(amount(lost.reduce((sum, entry) => sum + entry.gpus, 0)), "GPUs lost", lost.length ? "warn" : "good")),
    table(columns, rows, { empty: world.decided ? "Nothing is evicted." : "Nothing was decided yet.", label: "Evictions" }),
  ];
}

/* ---- the frame ---- */

const DRAW = { queues, pending, cluster, time, cycles, evictions };

function render() {
  if (!world) return;
  const { view, get } = state();
  const counts = { pending: world.pending.length, evictions: world.evictions.length, queues: world.queues.length, cluster: world.nodes.length, time: world.time ? world.time.starts.length : undefined };
  $("tabs").replaceChildren(...VIEWS.map(([name, title], i) => h("a", { href: link(name), "aria-current": name === view ? "page" : null, title: `Key ${i + 1}` },
    title, counts[name] === undefined ? null : h("span", { class: "count" }, ` ${counts[name].toLocaleString("en")}`))));
  $("tabs").querySelector("[aria-current]").scrollIntoView({ block: "nearest", inline: "nearest" });
  if ($("search") !== document.activeElement) $("search").value = get.get("q") || "";
  $("content").replaceChildren(...DRAW[view]().flat().filter((part) => part !== null && part !== undefined));
  document.title = `${world.name} · ${VIEWS.find(([name]) => name === view)[1]} · kai_cp`;
}

function frame() {
  $("title").textContent = world.name;
  const waits = world.pending.length, gone = world.evictions.length;
  const starts = world.starts.reduce((sum, entry) => sum + entry.pods, 0);
  const waiting = `${plural(waits, "pod group")} ${verb(waits, world.decided ? "stay" : "wait")}`;
  const said = world.decided ? `${plural(starts, "pod")} ${verb(starts, "start")}, ${plural(gone, "pod")} evicted, ${waiting} pending` : `${waiting}; nothing was decided`;
  $("subtitle").textContent = `${said}. As of ${world.now}${world.mode ? `, mode ${world.mode}` : ""}.`;
  $("broken").hidden = !world.broken.length;
  $("broken").replaceChildren(h("b", {}, "These decisions break rules:"), h("ul", {}, world.broken.map((sentence) => h("li", {}, sentence))));
  $("footer").replaceChildren(`${world.engine}. `, h("kbd", {}, "1"), "–", h("kbd", {}, "6"), " views, ", h("kbd", {}, "/"), " search, ", h("kbd", {}, "Esc"), " clear, ", h("kbd", {}, "d"), " dark or light.");
}

function theme(next) {
  let kept = null;
  try { kept = localStorage.getItem("kai-cp-theme"); if (next) localStorage.setItem("kai-cp-theme", next); } catch { /* a file may have no storage */ }
  const wanted = next || kept || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = wanted;
  if (next) render();
}

function keys(event) {
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") { event.target.blur(); if (event.target.id === "search") { event.target.value = ""; go({ q: "" }); } }
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const at = Number(event.key) - 1;
  if (VIEWS[at]) location.hash = link(VIEWS[at][0]);
  else if (event.key === "/") { event.preventDefault(); $("search").focus(); }
  else if (event.key === "d") theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  else if (event.key === "Escape") go({ q: "", group: "" });
}

async function start() {
  theme();
  $("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  document.addEventListener("keydown", keys);
  let wait = 0, width = innerWidth;
  $("search").addEventListener("input", (event) => { clearTimeout(wait); wait = setTimeout(() => go({ q: event.target.value }), 120); });
  addEventListener("hashchange", render);
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; render(); } });
  let found = JSON.parse($("data").textContent);
  if (found.source) {
    try {
      const answer = await fetch(found.source);
      if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
      found = await answer.json();
    } catch (error) {
      $("content").replaceChildren(h("p", { class: "empty" }, `There is nothing to show yet: ${error.message}. Reload the page in a moment.`));
      return;
    }
  }
  world = found;
  frame();
  render();
}
start();
