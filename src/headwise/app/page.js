"use strict";
// One page for lesions by hand. Text is only ever set as text. The lesion lives here; the server keeps none of it.
const $ = id => document.getElementById(id);
const make = (tag, text, cls) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (cls) e.className = cls; return e; };
const gates = new Map();  // "layer.head" -> value, only where it is not 1
let model = null, now = null, sets = [], asked = 0, from = null;  // from: the token whose row of attention is shown; null: the last

async function call(path, given = {}) {
  const reply = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(given) });
  const found = await reply.json();
  if (!reply.ok) throw new Error(found.error || `status ${reply.status}`);
  return found;
}
const list = () => [...gates].map(([key, value]) => [...key.split(".").map(Number), value]);
const problem = error => { $("error").hidden = !error; $("error").textContent = error ? error.message : ""; };
const percent = v => `${(100 * v).toFixed(1)} %`;

// ---- predictions
async function predict() {
  const number = ++asked, began = performance.now();
  $("count").textContent = gates.size;
  $("heads-word").textContent = gates.size === 1 ? "head" : "heads";
  $("how").textContent = (patching() ? "patched" : "silenced or gated") + (steered() ? `, steered by ${steered()}` : "");
  $("source-key").hidden = !patching() || !gates.size;
  const asks = { text: $("text").value, second: $("second").value, gates: patching() ? [] : list(), strength: steered() };
  if (patching() && gates.size) asks.patch = { heads: list().map(gate => gate.slice(0, 2)), source: $("second").value, tokens: $("mode").value };
  $("time").textContent = "running";
  try {
    const answers = await call("api/predict", asks);
    if (number !== asked) return;  // a later question overtook this one
    problem(null);
    $("answers").replaceChildren(...answers.map(answer));
    $("time").textContent = `${Math.round(performance.now() - began)} ms`;
    document.documentElement.dataset.answered = number;
  } catch (error) { if (number === asked) problem(error); }
}
const patching = () => model.continues && $("mode").value !== "silence";
const steered = () => Number($("strength").value);
function line(name, values, win) {  // values by kind: intact, source (of a patch), gated
  const row = make("div", undefined, win ? "line win" : "line"), bars = make("span", undefined, "bars");
  for (const kind in values) { const bar = make("i", undefined, kind); bar.style.width = `${100 * values[kind]}%`; bars.append(bar); }
  row.append(make("span", name), bars, make("span", percent(values.intact), "p"), make("span", percent(values.gated), "p"));
  row.title = Object.keys(values).map(kind => `${kind === "gated" ? "changed" : kind} ${percent(values[kind])}`).join(", ");
  return row;
}
function answer(found) {
  const box = make("div", undefined, "answer");
  box.dataset.task = found.task;
  box.append(make("h3", found.task));
  if (found.note) box.append(make("p", found.note, "hint"));
  else if (found.kind === "number") box.append(make("p", `${found.intact.toFixed(3)} intact, ${found.gated.toFixed(3)} with this lesion`));
  else if (found.tags) {
    const tags = make("div", undefined, "tags");
    for (const [word, intact, gated] of found.tags) {
      const tag = make("span", `${word} `, intact === gated ? "" : "changed");
      tag.append(make("b", intact === gated ? intact : `${intact} → ${gated}`));
      tags.append(tag);
    }
    box.append(tags);
  } else {
    const names = found.classes || found.tokens, best = found.gated.indexOf(Math.max(...found.gated));
    const kinds = ["intact", "source", "gated"].filter(kind => found[kind]);
    names.forEach((name, i) => box.append(line(found.tokens ? JSON.stringify(name) : name, Object.fromEntries(kinds.map(kind => [kind, found[kind][i]])), i === best)));
  }
  return box;
}

// ---- heads
const cells = new Map();
function build() {
  const most = Math.max(...model.counts), top = make("tr"), thead = make("thead");
  top.append(make("th"), ...Array.from({ length: most }, (_, h) => make("th", String(h))));
  thead.append(top);
  $("grid").append(thead);
  $("grid").classList.toggle("mixed", model.kinds.some(kind => kind !== "self"));
  $("grid").style.setProperty("--columns", most);
  $("grid").style.setProperty("--cell", `${Math.max(12, Math.min(52, Math.floor(400 / model.layers)))}px`);
  for (let l = model.layers - 1; l >= 0; l--) {
    const row = make("tr");
    row.append(make("th", model.kinds[l] === "self" ? String(l) : `${l} ${model.kinds[l]}`));
    for (let h = 0; h < model.heads; h++) {
      const cell = make("td");
      cell.setAttribute("role", "gridcell");
      if (h >= model.counts[l]) cell.className = "none";
      else { cell.dataset.head = `${l}.${h}`; cell.tabIndex = l === 0 && h === 0 ? 0 : -1; cells.set(cell.dataset.head, cell); }
      row.append(cell);
    }
    $("grid").append(row);
  }
  paint();
}
function paint() {
  $("grid").classList.toggle("patching", patching());
  for (const [key, cell] of cells) {
    const value = gates.has(key) ? gates.get(key) : 1;
    cell.classList.toggle("off", value === 0);
    cell.classList.toggle("now", key === now);
    cell.style.opacity = value === 0 ? 1 : 0.25 + 0.75 * value;
    cell.title = `head ${key}, ${patching() ? (value === 1 ? "not patched" : "patched") : `gate ${value}`}`;
    cell.setAttribute("aria-label", cell.title);
    cell.setAttribute("aria-selected", value === 0);
  }
  const value = now === null ? 1 : gates.has(now) ? gates.get(now) : 1;
  $("chosen").textContent = now === null ? "–" : now;
  $("gate").disabled = now === null || patching();
  $("gate").value = value;
  $("gate-value").textContent = value;
}
function put(key, value) { if (value === 1) gates.delete(key); else gates.set(key, value); }
function choose(key, toggle) {
  now = key;
  if (toggle) put(key, gates.has(key) && gates.get(key) === 0 ? 1 : 0);
  paint();
  predict();
  look();
}
$("grid").addEventListener("click", event => { const cell = event.target.closest("td[data-head]"); if (cell) choose(cell.dataset.head, true); });
$("grid").addEventListener("keydown", event => {
  const cell = event.target.closest("td[data-head]");
  if (!cell) return;
  const [l, h] = cell.dataset.head.split(".").map(Number);
  const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
  if (step) {
    const next = cells.get(`${l + step[0]}.${h + step[1]}`);
    if (next) { cell.tabIndex = -1; next.tabIndex = 0; next.focus(); }
    event.preventDefault();
  } else if (event.key === "Enter" || event.key === " ") { choose(cell.dataset.head, true); event.preventDefault(); }
});
$("gate").addEventListener("input", () => { put(now, Number($("gate").value)); paint(); predict(); });
$("reset").addEventListener("click", () => { gates.clear(); paint(); predict(); });
$("top").addEventListener("click", async () => {
  try {
    const heads = await call("api/top", { task: $("top-task").value, fraction: Number($("percent").value) / 100 });
    gates.clear();
    heads.forEach(([l, h]) => gates.set(`${l}.${h}`, 0));
    paint();
    predict();
  } catch (error) { problem(error); }
});

// ---- attention
// every head's map in its cell: rows attend to columns, as in the large one
async function lookAtAll() {
  const wanted = $("maps").checked;
  $("grid").classList.toggle("seen", wanted);
  if (!wanted) { for (const cell of cells.values()) cell.replaceChildren(); return; }
  try {
    const found = await call("api/attentions", { text: $("text").value, second: $("second").value }), n = found.size;
    const ink = getComputedStyle(document.documentElement).getPropertyValue("--heat").trim().split(" ").map(Number);
    for (const [key, cell] of cells) {
      const [l, h] = key.split(".").map(Number), weights = atob(found.maps[l][h]), canvas = make("canvas");
      canvas.width = canvas.height = n;
      const drawing = canvas.getContext("2d"), image = drawing.createImageData(n, n);
      for (let i = 0; i < n * n; i++) image.data.set([...ink, weights.charCodeAt(i)], 4 * i);
      drawing.putImageData(image, 0, 0);
      cell.replaceChildren(canvas);
    }
  } catch (error) { $("maps").checked = false; $("grid").classList.remove("seen"); $("attention-hint").textContent = error.message; }
}
$("maps").addEventListener("change", lookAtAll);
async function look() {
  if (now === null) return;
  const [layer, head] = now.split(".").map(Number);
  $("attention-head").textContent = now;
  try {
    const found = await call("api/attention", { text: $("text").value, second: $("second").value, layer, head, query: from });
    $("attention").hidden = found.query !== undefined;
    $("rows").hidden = !$("attention").hidden;
    if (found.query !== undefined) return row(found);
    const top = make("tr"), thead = make("thead"), body = make("tbody");
    top.append(make("th"), ...found.tokens.map(token => make("th", token)));
    thead.append(top);
    found.weights.forEach((row, i) => {
      const line = make("tr");
      line.append(make("th", found.tokens[i]));
      row.forEach((weight, j) => {
        const cell = make("td");
        cell.style.background = `rgb(${getComputedStyle(document.documentElement).getPropertyValue("--heat")} / ${weight})`;
        cell.title = `${found.tokens[i]} → ${found.tokens[j]}: ${percent(weight)}`;
        line.append(cell);
      });
      body.append(line);
    });
    $("attention").replaceChildren(thead, body);
    $("attention-hint").textContent = "rows attend to columns, in the intact model";
  } catch (error) { $("attention").replaceChildren(); $("attention-hint").textContent = error.message; }
}

// a long text: the row of one token, on the text itself; a click on a token looks from there
function row(found) {
  const weights = found.weights[0], ink = getComputedStyle(document.documentElement).getPropertyValue("--heat");
  $("rows").replaceChildren(...found.tokens.map((token, i) => {
    const part = make("span", token, i === found.query ? "from" : undefined);
    part.style.background = `rgb(${ink} / ${Math.sqrt(weights[i] || 0)})`;  // the square root, so that faint attention shows
    part.title = `token ${i}: ${percent(weights[i] || 0)}`;
    part.dataset.token = i;
    return part;
  }));
  const first = weights.map((w, i) => [w, i]).sort((a, b) => b[0] - a[0]).slice(0, 3).map(([w, i]) => `${JSON.stringify(found.tokens[i])} ${percent(w)}`);
  $("attention-hint").textContent = `from token ${found.query} of ${found.tokens.length}, framed, in the intact model: ${first.join(", ")}. Click a token to look from there.`;
}
$("rows").addEventListener("click", event => { const part = event.target.closest("[data-token]"); if (part) { from = Number(part.dataset.token); look(); } });

// ---- named sets
function listSets() {
  $("sets").replaceChildren(...sets.map((set, i) => {
    const item = make("li", `${set.name} (${set.gates.length} heads) `), use = make("button", "use"), drop = make("button", "forget");
    use.addEventListener("click", () => { gates.clear(); set.gates.forEach(([l, h, v]) => gates.set(`${l}.${h}`, v)); paint(); predict(); });
    drop.addEventListener("click", () => { sets.splice(i, 1); store(); });
    item.append(use, drop);
    return item;
  }));
}
function store() { localStorage.setItem(`headwise:${model.name}`, JSON.stringify(sets)); listSets(); }
$("keep").addEventListener("click", () => {
  const name = $("set-name").value.trim() || `lesion ${sets.length + 1}`;
  sets = sets.filter(set => set.name !== name).concat({ name, gates: list() });
  store();
});
$("mode").addEventListener("change", () => { $("second").hidden = !patching(); $("evaluate-row").hidden = patching() || !model.tasks.some(task => task.data); paint(); predict(); });
$("strength").addEventListener("input", () => { $("strength-value").textContent = $("strength").value; predict(); });
$("export").addEventListener("click", () => {
  // silenced heads as a HeadSet reads them (HeadSet.from_json), and the gates between
  const record = { model: model.name, name: $("set-name").value.trim(), heads: list().filter(g => g[2] === 0).map(g => g.slice(0, 2)), gates: list() };
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(record, null, 1)], { type: "application/json" }));
  link.download = `${(record.name || "lesion").replace(/[^A-Za-z0-9_-]+/g, "-")}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});

// ---- data: examples are one click, of the tasks that came with data or of the page's own
const OWN = [["The committee praised a brilliant but exhausting performance."], ["The keys to the old cabinet are on the table."], ["When Mary and John went to the store, John gave a drink to"], ["The cat sat on the mat. The cat sat on the"]];
// texts to continue, each with a source for patches
const BEGUN = [["When Mary and John went to the store, John gave a drink to", "When Mary and John went to the store, Mary gave a drink to"], ["The keys to the old cabinet", "The key to the old cabinet"], ["The capital of France is the city of", "The capital of Spain is the city of"], ["The cat sat on the mat. The cat sat on the", "The cat sat on the rug. The cat sat on the"]];
function offer(texts) {
  $("examples").querySelectorAll("button").forEach(button => button.remove());
  $("examples").append(...texts.slice(0, 4).map(text => {
    const whole = text.join(" ‖ "), button = make("button", whole.length > 30 ? `${whole.slice(0, 29)}…` : whole);
    button.type = "button";
    button.title = whole;
    button.addEventListener("click", () => { $("text").value = text[0]; $("second").value = text[1] || ""; askAgain(); });
    return button;
  }));
}
async function examples() {
  try { offer(await call("api/examples", { task: $("task").value })); } catch (error) { problem(error); }
}
$("task").addEventListener("change", examples);
$("evaluate").addEventListener("click", async () => {
  try {
    await call("api/evaluate", { task: $("evaluate-task").value, gates: list(), size: Number($("size").value), strength: steered() });
    problem(null);
    $("progress").hidden = false;
    const watch = setInterval(async () => {
      const job = await call("api/job");
      $("progress").max = job.total || 1;
      $("progress").value = job.done;
      if (job.running) return;
      clearInterval(watch);
      $("progress").hidden = true;
      if (job.error) return void ($("result").textContent = job.error);
      const r = job.result, value = v => r.share ? percent(v) : v.toFixed(3);
      const changed = [r.lesioned && "this lesion", r.strength && `steering of strength ${r.strength}`].filter(Boolean).join(" and ") || "no change";
      $("result").textContent = `${r.task}, ${r.metric} on ${r.examples} examples: ${value(r.intact)} intact, ${value(r.gated)} with ${changed}`;
    }, 200);
  } catch (error) { problem(error); }
});

function askAgain() { from = null; predict(); look(); lookAtAll(); }
let typing = 0;
for (const id of ["text", "second"]) $(id).addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(askAgain, 250); });
const set = name => { document.documentElement.dataset.theme = name; $("theme").textContent = name === "dark" ? "Light" : "Dark"; };
$("theme").addEventListener("click", () => set(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
$("theme").addEventListener("click", () => { look(); lookAtAll(); });  // their ink is the theme's
set(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

(async () => {
  model = await call("api/model");
  $("name").textContent = model.name;
  $("text").maxLength = $("second").maxLength = model.max_text;
  sets = JSON.parse(localStorage.getItem(`headwise:${model.name}`) || "[]");
  listSets();
  build();
  const known = model.tasks.filter(task => task.data);
  for (const id of ["task", "top-task", "evaluate-task"]) $(id).replaceChildren(...known.map(task => make("option", task.name)));
  for (const id of ["top-row", "evaluate-row"]) $(id).hidden = !known.length;
  $("task").hidden = known.length < 2;
  $("second").hidden = !model.tasks.some(task => task.pair !== false && ["classes", "number"].includes(task.kind));  // a language model continues one text
  $("mode-row").hidden = !model.continues;
  if (model.continues) {
    $("what").textContent = "Silence or patch attention heads by clicking them, and watch what the model says next.";
    $("second").placeholder = "source of the patch: the text from which chosen heads take their outputs";
    $("second").setAttribute("aria-label", "source of the patch");
    [$("text").value, $("second").value] = BEGUN[0];
  }
  if (model.steering) {
    const { target, strength, strongest, heads } = model.steering;
    $("steer-row").hidden = false;
    $("target").textContent = target;
    Object.assign($("strength"), { max: strongest, step: strongest / 100, value: strength });
    $("strength-value").textContent = $("strength").value;
    heads.forEach(([l, h]) => cells.get(`${l}.${h}`).classList.add("steered"));
  }
  if (known.length) await examples(); else offer(model.continues ? BEGUN : model.tasks.some(task => task.kind === "masked-token") ? [] : OWN);
  await predict();
  await lookAtAll();
  document.documentElement.dataset.ready = "yes";
})();
