"use strict";
// Data comes as JSON in the page; text is only ever set as text, never as HTML.
const report = JSON.parse(document.getElementById("report-data").textContent);
const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
const make = (tag, text, cls) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (cls) e.className = cls; return e; };
const show = (v, digits = 4) => v === null ? "–" : Math.abs(v) >= 1000 || (v !== 0 && Math.abs(v) < 0.001) ? v.toExponential(2) : String(+v.toPrecision(digits));

function colour(t) {
  const x = Math.min(1, Math.max(0, t)) * (CIVIDIS.length - 1), i = Math.min(CIVIDIS.length - 2, Math.floor(x)), f = x - i;
  const part = (hex, k) => parseInt(hex.slice(1 + 2 * k, 3 + 2 * k), 16);
  return `rgb(${[0, 1, 2].map(k => Math.round(part(CIVIDIS[i], k) * (1 - f) + part(CIVIDIS[i + 1], k) * f)).join(",")})`;
}

// ---- heads
const tip = document.getElementById("tip");
const ranks = new Map();  // map id -> task -> rank of "layer.head"
for (const map of report.maps) {
  const byTask = {};
  map.tasks.forEach((task, t) => {
    const all = [];
    map.values[t].forEach((row, l) => row.forEach((v, h) => { if (v !== null) all.push([v, l, h]); }));
    all.sort((a, b) => b[0] - a[0] || a[1] - b[1] || a[2] - b[2]);
    byTask[task] = Object.fromEntries(all.map((entry, i) => [`${entry[1]}.${entry[2]}`, i + 1]));
    map.total = all.length;
  });
  ranks.set(map.id, byTask);
}

function describe(map, t, l, h) {
  const lines = [`head ${l}.${h}: ${map.measure} ${show(map.values[t][l][h])} for ${map.tasks[t]}`];
  map.tasks.forEach(task => lines.push(`${task}: rank ${ranks.get(map.id)[task][`${l}.${h}`]} of ${map.total}`));
  return lines.slice(0, 12).join("\n");
}

function paint(map) {
  const shared = document.getElementById(`${map.id}-scale`).value;
  const finite = map.values.flat(2).filter(v => v !== null);
  const all = [Math.min(...finite), Math.max(...finite)];
  map.tasks.forEach((task, t) => {
    const own = map.values[t].flat().filter(v => v !== null);
    const [low, high] = shared === "shared" ? all : [Math.min(...own), Math.max(...own)];
    map.cells[t].forEach((row, l) => row.forEach((cell, h) => {
      const v = map.values[t][l][h];
      if (v !== null) cell.style.background = colour(shared === "rank" ? 1 - (ranks.get(map.id)[task][`${l}.${h}`] - 1) / Math.max(1, map.total - 1) : high > low ? (v - low) / (high - low) : 0.5);
    }));
  });
}

// what lesions leave of a task: a bar with its interval, and the same in words
function effectsOf(map, task) {
  const box = make("div", undefined, "effects"), most = Math.max(100, ...Object.values(map.effects).flat().flatMap(e => [e[1] || 0, e[3] || 0]));
  for (const [lesion, value, low, high] of map.effects[task]) {
    const row = make("div", undefined, "effect"), track = make("span", undefined, "track"), bar = make("i"), known = low !== null && high !== null;
    bar.style.width = `${100 * Math.max(0, value) / most}%`;
    track.append(bar);
    if (known) { const whisker = make("u"); whisker.style.left = `${100 * Math.max(0, low) / most}%`; whisker.style.width = `${100 * (Math.min(most, high) - Math.max(0, low)) / most}%`; track.append(whisker); }
    row.append(make("span", `${lesion}: `), make("b", value === null ? "–" : `${value.toFixed(value < 1 ? 1 : 0)} %`), make("small", known ? ` (${Math.max(0, low).toFixed(0)}–${high.toFixed(0)})` : ""), track);
    box.append(row);
  }
  box.append(make("div", `% ${map.effect}`.replace("% of", "Percent of").replace(/^% (\w)/, "Percent of $1"), "caption"));
  return box;
}

function build(map) {
  const box = document.getElementById(map.id);
  const layers = map.values[0].length;
  box.style.setProperty("--cell", layers > 26 ? "12px" : layers > 13 ? "15px" : "22px");
  map.cells = map.tasks.map((task, t) => {
    const figure = make("div", undefined, map.tasks.length === 1 && map.effects[task] ? "map alone" : "map");
    figure.append(make("h4", task));
    const table = make("table", undefined, "heads");
    table.setAttribute("role", "grid");
    table.setAttribute("aria-label", `${map.measure} of every head for ${task}; arrow keys move, Enter opens a head`);
    const cells = map.values[t].map(() => []);
    for (let l = map.values[t].length - 1; l >= 0; l--) {
      const row = make("tr");
      row.append(make("th", String(l)));
      map.values[t][l].forEach((v, h) => {
        const cell = make("td");
        cell.setAttribute("role", "gridcell");
        if (v === null) cell.className = "none";
        else {
          cell.dataset.head = `${l}.${h}`;
          cell.setAttribute("aria-label", `head ${l}.${h}, ${map.measure} ${show(v)}, rank ${ranks.get(map.id)[task][`${l}.${h}`]}`);
          cell.tabIndex = l === 0 && h === 0 ? 0 : -1;
          if ((map.chosen[task] || []).includes(`${l}.${h}`)) cell.classList.add("chosen");
        }
        cells[l].push(cell);
        row.append(cell);
      });
      table.append(row);
    }
    const foot = make("tfoot"), numbers = make("tr"), wide = map.values[t][0].length, step = wide > 16 ? Math.ceil(wide / 8) : 1;
    numbers.append(make("th"), ...Array.from({ length: wide }, (_, h) => make("th", h % step ? "" : String(h))));
    foot.append(numbers);
    table.append(foot);
    const at = event => { const c = event.target.closest("td[data-head]"); return c && c.dataset.head.split(".").map(Number); };
    table.addEventListener("mousemove", event => {
      const place = at(event);
      tip.hidden = !place;
      if (!place) return;
      tip.textContent = describe(map, t, ...place);
      tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
      tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
    });
    table.addEventListener("mouseleave", () => { tip.hidden = true; });
    table.addEventListener("click", event => { const place = at(event); if (place) profile(map, ...place); });
    table.addEventListener("keydown", event => {
      const place = at(event);
      if (!place) return;
      const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
      if (step) {
        const next = (cells[place[0] + step[0]] || [])[place[1] + step[1]];
        if (next && next.dataset.head) { event.target.tabIndex = -1; next.tabIndex = 0; next.focus(); }
        event.preventDefault();
      } else if (event.key === "Enter" || event.key === " ") { profile(map, ...place); event.preventDefault(); }
    });
    figure.append(table);
    if (map.effects[task]) figure.append(effectsOf(map, task));
    box.append(figure);
    return cells;
  });
  document.getElementById(`${map.id}-scale`).addEventListener("change", () => paint(map));
  document.getElementById(`${map.id}-legend`).style.background = `linear-gradient(to right, ${CIVIDIS.join(",")})`;
  paint(map);
}

function profile(map, l, h) {
  const box = document.getElementById(`${map.id}-profile`);
  box.replaceChildren(make("h4", `Head ${l}.${h} (layer ${l}, head ${h})`));
  for (const other of report.maps) {
    if (!other.values[0][l] || other.values[0][l][h] === undefined || other.values[0][l][h] === null) continue;
    if (other.values[0].length !== map.values[0].length) continue;  // another model
    box.append(make("p", `${other.measure}: ${other.title}`, "caption"));
    other.tasks.forEach((task, t) => {
      const v = other.values[t][l][h], rank = ranks.get(other.id)[task][`${l}.${h}`], row = make("div", undefined, "bar"), wide = make("span"), bar = make("i");
      bar.style.width = `${100 * (1 - (rank - 1) / Math.max(1, other.total - 1))}%`;
      wide.append(bar);
      const mark = (other.chosen[task] || []).includes(`${l}.${h}`) ? " ●" : "";
      row.append(make("span", task + mark), wide, make("span", `${show(v)}, rank ${rank}`));
      box.append(row);
    });
  }
  box.append(make("p", "Bars show the rank among all heads, longest for the first; ● marks a task's chosen set.", "caption"));
  box.hidden = false;
}

// ---- tables: a click on a column's name sorts by it, another the other way round
const compare = (a, b) => {
  const [x, y] = [parseFloat(a.replace("−", "-")), parseFloat(b.replace("−", "-"))];
  if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;  // what has no number comes last
  return isNaN(x) ? a.localeCompare(b) : x - y;
};

function sortable(table) {
  const heads = [...table.querySelectorAll("thead th")], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = make("button", head.textContent);
    button.type = "button";
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "ascending", at = row => row.cells[column].textContent;
      const none = row => at(row) === "–";
      const rows = [...body.rows].sort((a, b) => none(a) - none(b) || (falling ? -1 : 1) * compare(at(a), at(b)));
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      body.append(...rows);
    });
    head.replaceChildren(button);
  });
}

document.querySelectorAll(".headline, .findings li, .caption").forEach(e => { e.textContent = e.textContent.replace(/(\d) %/g, "$1\u00a0%"); });  // a number keeps its sign
document.querySelectorAll("table.data:has(thead)").forEach(sortable);
report.maps.forEach(build);
const theme = document.getElementById("theme");
const set = name => { document.documentElement.dataset.theme = name; theme.textContent = name === "dark" ? "Light" : "Dark"; };
theme.addEventListener("click", () => set(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
addEventListener("beforeprint", () => { set("light"); document.querySelectorAll("details").forEach(d => { d.open = true; }); });
set(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.documentElement.dataset.ready = "yes";
